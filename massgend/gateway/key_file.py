"""keys.toml: keys (or commands that print them) and base URLs, one table a provider, for its owner's eyes only."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from massgend.gateway.key_variables import Scheme
from massgend.gateway.private_files import MAX_BYTES, KeysError, open_private
from massgend.gateway.wires import Wire

__all__ = ["KeyEntry", "KeyFile", "KeysError", "add_key", "check_base_url"]

_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
_RESERVED = frozenset({"v1", "v1beta"})


def check_base_url(url: str) -> str:
    """https://host[/path], http://... or unix:///path/to.sock. Raises ValueError."""
    if re.fullmatch(r"https?://[^\s/?#@]+(?:/[^\s?#]*)?|unix:///[^\s?#]+", url) is None:
        raise ValueError("write https://host/path, http://host/path or unix:///path, without user, query or fragment")
    return url.rstrip("/")


class KeyEntry(BaseModel):
    """One provider's table. A provider that massgend does not know needs `wire` and `base_url`."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    wire: Wire | None = None
    base_url: Annotated[str, AfterValidator(check_base_url)] | None = None
    key: str | None = Field(default=None, repr=False)
    command: tuple[str, ...] | None = Field(default=None, min_length=1)
    timeout_s: float = Field(default=10.0, gt=0, le=120)
    keep_s: float | None = Field(default=None, gt=0, description="Seconds after which the command is asked again.")
    login: Path | None = Field(default=None, description="A login's file, beside keys.toml unless it is absolute.")
    scheme: Scheme = Scheme.API_KEY


_FILE = TypeAdapter(dict[str, KeyEntry])


class KeyFile:
    """Read again whenever it changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp: tuple[int, int, int] | None = None
        self._entries: Mapping[str, KeyEntry] = {}

    def entries(self) -> Mapping[str, KeyEntry]:
        """Empty when there is no file. Raises KeysError, also when others could read or write it."""
        try:
            descriptor = open_private(self.path)
        except FileNotFoundError:
            return {}
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(file.fileno())
            stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
            if stamp != self._stamp:
                self._entries = _parse(file.read(MAX_BYTES), self.path)
                self._stamp = stamp
        return self._entries


def _parse(content: bytes, path: Path) -> Mapping[str, KeyEntry]:
    try:
        entries = _FILE.validate_python(tomllib.loads(content.decode()))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        raise KeysError(f"{path} is not TOML") from None  # the parser's message could quote a key
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise KeysError(f"{path}: {where}: {first['msg']}") from None
    for name in entries:
        if _NAME.fullmatch(name) is None or name in _RESERVED:
            raise KeysError(f"{path}: '{name}' cannot be a provider's name: use small letters, digits and -")
    return entries


def add_key(path: Path, provider: str, key: str) -> None:
    """Write a provider's table at the end of the file, which is made when it is not there (mode 0600).

    What stands in it is kept as it is. Raises KeysError: the provider has a table already, or it cannot be written.
    """
    if provider in KeyFile(path).entries():
        raise KeysError(f"{path} has a table [{provider}] already: change the key there")
    if any(ord(sign) < 32 or sign in '"\\' for sign in key):
        raise KeysError(f"this is no key for {provider}: it has quotes or control characters")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "a") as file:
            file.write(f'\n[{provider}]\nkey = "{key}"\n')
    except OSError as error:
        raise KeysError(f"the key file {path} cannot be written: {error.strerror}") from None
