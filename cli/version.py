"""The version of what is installed."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def own_version() -> str:
    try:
        return version("massgend")
    except PackageNotFoundError:
        return "unknown"
