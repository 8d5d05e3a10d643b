"""Keys: found where they lie, never shown, never from a place that others could read."""

from __future__ import annotations

import copy
import json
import pickle
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import keyring
import keyring.errors
import pytest
from keyrings.alt.file import PlaintextKeyring

from massgend.gateway.key_file import KeysError
from massgend.gateway.key_variables import Scheme, keys_in, variables
from massgend.gateway.keys import KEYRING_SERVICE, Credential, KeyRing
from massgend.gateway.secret import LeakWatch, Secret, scrub

KEY = "sk-ant-canary-77aa88bb99cc"

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def ring(folder: Path, text: str | None = None, mode: int = 0o600, **environment: str) -> KeyRing:
    if text is not None:
        (folder / "keys.toml").write_text(text)
        (folder / "keys.toml").chmod(mode)
    return KeyRing(environment=environment, folder=folder, use_keyring=False)


async def key_of(keys: KeyRing, name: str = "anthropic") -> Credential:
    return await keys.credential(keys.providers()[name])


def test_a_secret_is_shown_by_nothing() -> None:
    @dataclass
    class Holder:
        secret: Secret

    holder = Holder(secret=Secret(KEY))
    shown = [repr(holder), str(holder.secret), f"{holder.secret}", f"{holder.secret:>9}", str(asdict(holder))]
    assert not any(KEY in text for text in shown)
    for write in (pickle.dumps, json.dumps):
        with pytest.raises(TypeError) as caught:
            write(holder.secret)
        assert KEY not in str(caught.value)
    assert KEY not in repr(copy.deepcopy(holder))
    assert not hasattr(holder.secret, "__dict__")
    assert holder.secret == Secret(KEY)
    assert holder.secret != Secret(KEY + "x")


@pytest.mark.parametrize("text", ["", "two words", "line\nbreak", "\u00e9", "\r\nX: y", "a" * 10_000])
def test_what_cannot_stand_in_a_header_is_no_secret_and_is_not_quoted(text: str) -> None:
    with pytest.raises(ValueError, match="visible ASCII") as caught:
        Secret(text)
    assert not text or text not in str(caught.value)


def test_a_key_is_noticed_over_the_border_of_chunks() -> None:
    watch = LeakWatch((Secret(KEY),))
    assert [watch.completes(bytes([byte])) for byte in KEY.encode()] == [False] * (len(KEY) - 1) + [True]


def test_masked_keys_are_scrubbed_too() -> None:
    said = b"Incorrect API key provided: sk-proj-********abcd. And AIzaSyA-1234567890abcd, " + KEY.encode()
    assert scrub(said, (Secret(KEY),)) == b"Incorrect API key provided: [redacted] And [redacted], [redacted]"


async def test_the_order_of_places(tmp_path: Path) -> None:
    keys = ring(tmp_path, f'[anthropic]\nkey = "{KEY}-file"\n', ANTHROPIC_API_KEY=f"{KEY}-env")
    assert (await key_of(keys)).secret == Secret(f"{KEY}-env")
    keys.offer("anthropic", Secret(f"{KEY}-offered"))
    assert (await key_of(keys)).secret == Secret(f"{KEY}-offered")
    assert (await key_of(ring(tmp_path))).secret == Secret(f"{KEY}-file")


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602, 0o610])
async def test_a_key_file_that_others_may_touch_is_refused(tmp_path: Path, mode: int) -> None:
    keys = ring(tmp_path, f'[anthropic]\nkey = "{KEY}"\n', mode=mode)
    with pytest.raises(KeysError, match="chmod 600"):
        keys.providers()


@pytest.mark.parametrize(
    "text",
    [
        f"[anthropic]\nkey = {KEY}",
        f'[anthropic]\nkey = "{KEY}"\nextra = "{KEY}"',
        f'[anthropic]\nkey = ["{KEY}"]',
        f'[anthropic]\nkey = "{KEY}"\nbase_url = "ftp://{KEY}"',
        f'["../x"]\nkey = "{KEY}"',
        f'[own]\nkey = "{KEY}"',
        f'[anthropic]\nkey = "{KEY} two"',
    ],
)
async def test_a_key_file_that_is_wrong_is_told_without_the_key(tmp_path: Path, text: str) -> None:
    keys = ring(tmp_path, text)
    with pytest.raises(KeysError) as caught:
        await key_of(keys)
    assert KEY not in "".join(traceback.format_exception(caught.value))


async def test_the_key_file_is_read_again_when_it_changed(tmp_path: Path) -> None:
    keys = ring(tmp_path, '[anthropic]\nkey = "first-key"\n')
    assert (await key_of(keys)).secret == Secret("first-key")
    (tmp_path / "keys.toml").write_text('[anthropic]\nkey = "second-key"\n')
    assert (await key_of(keys)).secret == Secret("second-key")


def test_the_environments_keys_come_with_their_base_url_and_scheme() -> None:
    found = {
        key.provider: key
        for key in keys_in(
            {
                "CLAUDE_CODE_OAUTH_TOKEN": KEY,
                "ANTHROPIC_BASE_URL": "https://proxy.example",
                "GOOGLE_API_KEY": "google-key",
                "OPENAI_API_KEY": "two words",
            }
        )
    }
    assert set(found) == {"anthropic", "gemini"}
    assert found["anthropic"].scheme is Scheme.OAUTH
    assert found["anthropic"].base_url == "https://proxy.example"


async def test_a_clients_environment_goes_before_the_daemons_and_stays_with_its_base_url(tmp_path: Path) -> None:
    keys = ring(tmp_path, ANTHROPIC_API_KEY="daemons-key", ANTHROPIC_BASE_URL="https://daemon.example")
    client = {"CLAUDE_CODE_OAUTH_TOKEN": KEY, "OPENAI_API_KEY": "", "SECRET": "x"}
    given = {name: client[name] for name in variables() if name in client}
    assert keys.offer_environment(given) == ("anthropic",)
    credential = await key_of(keys)
    assert (credential.secret, credential.scheme) == (Secret(KEY), Scheme.OAUTH)
    assert credential.base_url == "https://api.anthropic.com", "a client's key does not go where the daemon's own does"
    assert "SECRET" not in given


async def test_a_providers_own_place_can_be_configured(tmp_path: Path) -> None:
    text = """
[anthropic]
base_url = "https://bedrock.example/anthropic/"
scheme = "bearer"
key = "bedrock-key"
[my-vllm]
wire = "openai"
base_url = "unix:///run/vllm.sock"
scheme = "none"
"""
    keys = ring(tmp_path, text)
    own = await key_of(keys, "my-vllm")
    assert (own.secret, own.base_url) == (None, "unix:///run/vllm.sock")
    bedrock = await key_of(keys)
    assert (bedrock.scheme, bedrock.base_url) == (Scheme.BEARER, "https://bedrock.example/anthropic")


async def test_a_command_gives_the_key_once_and_again_when_it_was_refused(tmp_path: Path) -> None:
    script = tmp_path / "give"
    script.write_text(f'#!/bin/sh\necho x >> {tmp_path}/asked\necho "key-$(wc -l < {tmp_path}/asked)"\n')
    script.chmod(0o700)
    keys = ring(tmp_path, f'[anthropic]\ncommand = ["{script}"]\n')
    assert [(await key_of(keys)).secret for _ in range(3)] == [Secret("key-1")] * 3
    keys.renew("anthropic", Secret("an-older-key"))
    assert (await key_of(keys)).secret == Secret("key-1"), "a newer one is there already"
    keys.renew("anthropic", Secret("key-1"))
    renewed = await key_of(keys)
    assert renewed.secret == Secret("key-2")
    assert renewed.renewable


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["/no/such/program"], "cannot be run"),
        ([sys.executable, "-c", f"print('{KEY}'); raise SystemExit(3)"], "ended with exit code 3"),
        ([sys.executable, "-c", ""], "visible ASCII"),
        ([sys.executable, "-c", f"print('{KEY}\\n{KEY}')"], "visible ASCII"),
        (["sleep", "30"], "gave none within 0.5 s"),
    ],
)
async def test_a_command_that_gives_no_key_is_told_without_its_output(
    tmp_path: Path, argv: list[str], why: str
) -> None:
    keys = ring(
        tmp_path, f"[anthropic]\ncommand = {json.dumps(argv)}\ntimeout_s = {0.5 if argv[0] == 'sleep' else 20}\n"
    )
    began = time.monotonic()
    with pytest.raises(KeysError, match=why) as caught:
        await key_of(keys)
    assert time.monotonic() - began < 20
    assert KEY not in str(caught.value)


@pytest.fixture
def system_keyring(tmp_path: Path) -> Iterator[None]:
    """A real backend of the keyring library, whose keys lie in a file of the test's."""
    before = keyring.get_keyring()
    backend = PlaintextKeyring()
    backend.file_path = str(tmp_path / "keyring.cfg")
    keyring.set_keyring(backend)
    yield
    keyring.set_keyring(before)


async def test_a_key_of_the_system_keyring_is_used_when_nothing_else_names_one(
    tmp_path: Path, system_keyring: None
) -> None:
    keyring.set_password(KEYRING_SERVICE, "anthropic", KEY)
    keys = KeyRing(environment={}, folder=tmp_path)
    credential = await key_of(keys)
    assert (credential.secret, credential.scheme, credential.where) == (
        Secret(KEY),
        Scheme.API_KEY,
        "the system keyring",
    )
    with pytest.raises(KeysError, match="massgend has no key for openai"):
        await key_of(keys, "openai")
    (tmp_path / "keys.toml").write_text('[anthropic]\nkey = "in-the-file"\n')
    (tmp_path / "keys.toml").chmod(0o600)
    assert (await key_of(KeyRing(environment={}, folder=tmp_path))).secret == Secret("in-the-file")


async def test_a_keyring_that_is_locked_is_no_key(tmp_path: Path, system_keyring: None) -> None:
    class Locked(PlaintextKeyring):  # type: ignore[misc]
        def get_password(self, service: str, username: str) -> str | None:
            raise keyring.errors.KeyringLocked("locked")

    keyring.set_keyring(Locked())
    with pytest.raises(KeysError, match="massgend has no key for anthropic"):
        await key_of(KeyRing(environment={}, folder=tmp_path))


async def test_places_name_where_keys_lie_and_never_the_keys(tmp_path: Path) -> None:
    text = f'[openai]\ncommand = ["/no/such"]\n[gemini]\nkey = "{KEY}"\n'
    keys = ring(tmp_path, text, ANTHROPIC_API_KEY=KEY)
    keys.offer("xai", Secret(KEY))
    places = {place.provider: place for place in await keys.places()}

    assert set(places) == {"anthropic", "openai", "gemini", "xai"}
    assert places["anthropic"].where == "the environment (ANTHROPIC_API_KEY)"
    assert places["gemini"].where == f"{tmp_path}/keys.toml"
    assert places["xai"].where == "handed over by the client"
    assert places["openai"].problem == "the command for openai's key cannot be run: /no/such: No such file or directory"
    assert KEY not in repr(places)
