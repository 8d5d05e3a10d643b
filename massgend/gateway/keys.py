"""Where each provider's key comes from: handed over, environment, keys.toml (also by a command), system keyring.

The only holder of keys. It gives them to the gateway's upstreams, tells people where they lie, and never shows one.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from massgend.gateway.key_file import KeyEntry, KeyFile, KeysError, check_base_url
from massgend.gateway.key_variables import FoundKey, Scheme, keys_in
from massgend.gateway.login import Login
from massgend.gateway.secret import Secret
from massgend.gateway.wires import PROVIDERS, Provider

KEY_FILE = "keys.toml"
KEYRING_SERVICE = "massgend"
KEYRING_TIMEOUT_S = 10.0
MAX_COMMAND_OUTPUT = 64 * 1024


@dataclass(frozen=True, kw_only=True)
class Credential:
    """A key ready for use. `where` names its place for people; `renewable`: asking again may give a newer one."""

    secret: Secret | None
    scheme: Scheme
    base_url: str
    where: str
    renewable: bool = False


@dataclass(frozen=True, kw_only=True)
class KeyPlace:
    """Where a provider's key lies, for people. `problem`: why it cannot be used."""

    provider: str
    where: str
    scheme: Scheme
    base_url: str
    problem: str | None = None


@dataclass(frozen=True, kw_only=True)
class _Kept:
    secret: Secret
    until: float | None


class KeyRing:
    """`environment` is the daemon's (read by massgend.settings); `folder` is massgend's configuration folder.

    `proxy`: an HTTP proxy of the host's, on the way to where logins are refreshed.
    """

    def __init__(
        self,
        *,
        environment: Mapping[str, str],
        folder: Path,
        now: Callable[[], float] = time.monotonic,
        use_keyring: bool = True,
        proxy: str | None = None,
    ) -> None:
        self._file = KeyFile(folder / KEY_FILE)
        self._found = {key.provider: key for key in keys_in(environment)}
        self._base_urls = {
            provider.name: environment[provider.base_url_variable]
            for provider in PROVIDERS
            if provider.base_url_variable and environment.get(provider.base_url_variable)
        }
        self._offered: dict[str, FoundKey] = {}
        self._kept: dict[str, _Kept] = {}
        self._logins: dict[Path, Login] = {}
        self._refused: dict[str, Secret] = {}
        self._proxy = proxy
        self._asking: dict[str, asyncio.Lock] = {}
        self._now = now
        self._use_keyring = use_keyring and importlib.util.find_spec("keyring") is not None

    @property
    def path(self) -> Path:
        """The file for keys; it need not exist."""
        return self._file.path

    def providers(self) -> Mapping[str, Provider]:
        """Every provider that calls can go to. Raises KeysError when keys.toml cannot be used."""
        known = {provider.name: provider for provider in PROVIDERS}
        for name, entry in self._file.entries().items():
            if name in known:
                known[name] = replace(known[name], wire=entry.wire or known[name].wire)
            elif entry.wire is None or entry.base_url is None:
                raise KeysError(f"{self._file.path}: {name} is not known to massgend: give its wire and its base_url")
            else:
                known[name] = Provider(name=name, wire=entry.wire, base_url=entry.base_url)
        return known

    def offer(
        self, provider: str, secret: Secret, scheme: Scheme = Scheme.API_KEY, base_url: str | None = None
    ) -> None:
        """A key that a client hands over: kept in memory only, until the daemon ends; it goes before all others."""
        self._offered[provider] = FoundKey(
            provider=provider, variable="", secret=secret, scheme=scheme, base_url=base_url
        )

    def give(self, provider: str, secret: Secret) -> None:
        """A key that a user types: kept in memory, and used as it would be if it stood in keys.toml."""
        entry = self._file.entries().get(provider)
        scheme = Scheme.API_KEY if entry is None or entry.scheme is Scheme.NONE else entry.scheme
        self.offer(provider, secret, scheme, self._base_urls.get(provider))

    def offer_environment(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        """The keys of a client's environment, as by `offer`; the names of the providers that they are for."""
        found = tuple(keys_in(environment))
        for key in found:
            self.offer(key.provider, key.secret, key.scheme, key.base_url)
        return tuple(key.provider for key in found)

    def withdraw(self, provider: str) -> None:
        self._offered.pop(provider, None)

    async def credential(self, provider: Provider) -> Credential:
        """The key to use now. Raises KeysError when there is none, or its place gives none."""
        name = provider.name
        entry = self._file.entries().get(name)
        found = self._offered.get(name) or self._found.get(name)
        if found is not None:
            where = f"the environment ({found.variable})" if found.variable else "handed over by the client"
            url = self._base_url(provider, entry, found.base_url)
            return Credential(secret=found.secret, scheme=found.scheme, base_url=url, where=where)
        url = self._base_url(provider, entry, self._base_urls.get(name))
        if entry is not None:
            credential = await self._from_entry(name, entry, url)
            if credential is not None:
                return credential
        if self._use_keyring:
            secret = await self._keep(name, None, lambda: _ask_keyring(name))
            if secret is not None:
                return Credential(secret=secret, scheme=Scheme.API_KEY, base_url=url, where="the system keyring")
        raise KeysError(f"massgend has no key for {name}: {_how_to_give(provider, self._file.path)}")

    def renew(self, provider: str, refused: Secret) -> None:
        """The key was refused: unless a newer one is there already, it is asked for anew at the next call."""
        self._refused[provider] = refused
        kept = self._kept.get(provider)
        if kept is not None and kept.secret == refused:
            del self._kept[provider]

    async def settle(self) -> None:
        """Until no login is being refreshed: what comes may be its only good refresh token. Bounded."""
        for login in self._logins.values():
            await login.settle()

    async def places(self) -> tuple[KeyPlace, ...]:
        """Where each key lies, never the key. Providers without one are left out."""
        places = []
        for provider in self.providers().values():
            try:
                found = await self.credential(provider)
            except KeysError as error:
                if provider.name in self._file.entries():
                    place = KeyPlace(
                        provider=provider.name,
                        where=str(self._file.path),
                        scheme=Scheme.NONE,
                        base_url=provider.base_url,
                        problem=str(error),
                    )
                    places.append(place)
                continue
            places.append(
                KeyPlace(provider=provider.name, where=found.where, scheme=found.scheme, base_url=found.base_url)
            )
        return tuple(places)

    async def _from_entry(self, name: str, entry: KeyEntry, url: str) -> Credential | None:
        if entry.scheme is Scheme.NONE:
            return Credential(secret=None, scheme=Scheme.NONE, base_url=url, where=f"{self._file.path} (no key)")
        if entry.key is not None:
            secret = _secret(entry.key, f"{self._file.path}, {name}")
            return Credential(secret=secret, scheme=entry.scheme, base_url=url, where=str(self._file.path))
        if entry.login is not None:
            path = self._file.path.parent / entry.login
            login = self._logins.setdefault(path, Login(path, proxy=self._proxy))
            token = await login.access_token(refused=self._refused.get(name))
            return Credential(
                secret=token, scheme=entry.scheme, base_url=url, where=f"the login {path}", renewable=True
            )
        if entry.command is None:
            return None
        command = entry.command
        asked = await self._keep(name, entry.keep_s, lambda: _ask_command(name, command, entry.timeout_s))
        where = f"the command {command[0]} ({self._file.path})"
        return Credential(secret=asked, scheme=entry.scheme, base_url=url, where=where, renewable=True)

    async def _keep(
        self, name: str, keep_s: float | None, ask: Callable[[], Awaitable[Secret | None]]
    ) -> Secret | None:
        """Asks once, however many wait; a key that was given is kept for `keep_s` (None: until it is refused)."""
        async with self._asking.setdefault(name, asyncio.Lock()):
            kept = self._kept.get(name)
            if kept is not None and (kept.until is None or self._now() < kept.until):
                return kept.secret
            secret = await ask()
            if secret is not None:
                self._kept[name] = _Kept(secret=secret, until=None if keep_s is None else self._now() + keep_s)
            return secret

    def _base_url(self, provider: Provider, entry: KeyEntry | None, own: str | None) -> str:
        url = own or (entry.base_url if entry else None) or provider.base_url
        try:
            return check_base_url(url)
        except ValueError as error:
            raise KeysError(f"the base URL for {provider.name} cannot be used: {error}") from None


def _how_to_give(provider: Provider, path: Path) -> str:
    variable = f"set {provider.key_variables[0]}, or " if provider.key_variables else ""
    return f"{variable}run massgend setup, or write it to {path}"


def _secret(text: str, where: str) -> Secret:
    try:
        return Secret(text.strip())
    except ValueError as error:
        raise KeysError(f"{where}: {error}") from None


async def _ask_command(name: str, argv: tuple[str, ...], timeout_s: float) -> Secret:
    try:
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except OSError as error:
        raise KeysError(f"the command for {name}'s key cannot be run: {argv[0]}: {error.strerror}") from None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(timeout_s):
            output = await process.stdout.read(MAX_COMMAND_OUTPUT)
            exit_code = await process.wait()
    except TimeoutError:
        raise KeysError(f"the command for {name}'s key ({argv[0]}) gave none within {timeout_s:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if exit_code != 0:
        raise KeysError(f"the command for {name}'s key ({argv[0]}) ended with exit code {exit_code}")
    return _secret(output.decode(errors="replace"), f"the output of {argv[0]}")


async def _ask_keyring(name: str) -> Secret | None:
    """The `keyring` package is optional, and its backends raise what they like: any trouble there means no key."""
    keyring = importlib.import_module("keyring")
    errors = importlib.import_module("keyring.errors")
    try:
        async with asyncio.timeout(KEYRING_TIMEOUT_S):
            text = await asyncio.to_thread(keyring.get_password, KEYRING_SERVICE, name)
    except (TimeoutError, OSError, RuntimeError, errors.KeyringError):
        return None
    return _secret(text, "the system keyring") if text else None
