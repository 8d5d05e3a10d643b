"""The daemon's settings, and the only reader of the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from massgend.discovery import Places, find_engine, find_places
from massgend.gateway.key_variables import variables

SANDBOX_UID = 1000
"""Whom sandboxes run as when the daemon is root; otherwise they run as the daemon's own user."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    places: Places
    docker_host: str
    uid: int
    gid: int
    engine_threads: int
    engine_timeout_s: float
    min_free_bytes: int
    log_level: str
    config: Path
    keys: Mapping[str, str] = field(repr=False)
    proxy: str | None


class SettingsError(Exception):
    """A setting is wrong; the message says which and what is allowed."""


def load_settings(environment: Mapping[str, str] = os.environ) -> Settings:
    """From the environment: see docs/settings.md. Raises SettingsError."""
    root = os.geteuid() == 0
    return Settings(
        places=find_places(environment),
        docker_host=find_engine(environment),
        uid=SANDBOX_UID if root else os.geteuid(),
        gid=SANDBOX_UID if root else os.getegid(),
        engine_threads=_whole(environment, "MASSGEND_ENGINE_THREADS", 16, 1, 256),
        engine_timeout_s=float(_whole(environment, "MASSGEND_ENGINE_TIMEOUT_S", 60, 1, 3600)),
        min_free_bytes=_whole(environment, "MASSGEND_MIN_FREE_MB", 512, 0, 1_000_000) * 1024**2,
        log_level=_one_of(environment, "MASSGEND_LOG_LEVEL", "INFO", ("DEBUG", "INFO", "WARNING", "ERROR")),
        config=_config_folder(environment),
        keys={name: environment[name] for name in variables() if environment.get(name)},
        proxy=environment.get("MASSGEND_UPSTREAM_PROXY") or None,
    )


def _config_folder(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_CONFIG_HOME") or str(Path(environment.get("HOME", "/")) / ".config")
    return Path(base) / "massgend"


def _whole(environment: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    text = environment.get(name, "")
    if not text:
        return default
    if not text.isdecimal() or not least <= int(text) <= most:
        raise SettingsError(f"{name}={text} is not a whole number from {least} to {most}")
    return int(text)


def _one_of(environment: Mapping[str, str], name: str, default: str, allowed: tuple[str, ...]) -> str:
    text = environment.get(name, "").upper() or default
    if text not in allowed:
        raise SettingsError(f"{name}={text} is not one of {', '.join(allowed)}")
    return text
