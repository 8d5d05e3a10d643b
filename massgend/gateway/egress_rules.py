"""Which hosts a sandbox may reach: presets, host names, wildcards. PURE. Nothing is allowed by default."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

PRESETS: dict[str, tuple[str, ...]] = {
    "pypi": ("pypi.org", "files.pythonhosted.org"),
    "npm": ("registry.npmjs.org", "registry.yarnpkg.com"),
    "debian": ("deb.debian.org", "security.debian.org"),
    "github": (
        "github.com",
        "api.github.com",
        "codeload.github.com",
        "raw.githubusercontent.com",
        "objects.githubusercontent.com",
        "release-assets.githubusercontent.com",
    ),
    "crates": ("crates.io", "static.crates.io", "index.crates.io"),
    "go": ("proxy.golang.org", "sum.golang.org"),
}
WEB_PORTS = frozenset({80, 443})

_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_RULE = re.compile(r"(?P<wild>\*\.)?(?P<host>[^*:/@\s]+?)\.?(?::(?P<port>\d{1,5}))?")


class EgressError(ValueError):
    """An entry of the egress list cannot be understood; the message says which."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """`host` exactly, or with `below` every name below it (not itself). `port` None: 80 and 443."""

    host: str
    below: bool = False
    port: int | None = None

    def allows(self, host: str, port: int) -> bool:
        if port != self.port and (self.port is not None or port not in WEB_PORTS):
            return False
        return host.endswith(f".{self.host}") if self.below else host == self.host


@dataclass(frozen=True, kw_only=True)
class EgressRules:
    rules: tuple[Rule, ...] = ()

    def allow(self, host: str, port: int) -> bool:
        """`host` as `clean_host` gives it."""
        return any(rule.allows(host, port) for rule in self.rules)


def parse_egress(entries: Iterable[str]) -> EgressRules:
    """From `pypi`, `example.com`, `*.example.com`, `example.com:8443`. Raises EgressError."""
    rules: list[Rule] = []
    for entry in entries:
        if entry in PRESETS:
            rules += (Rule(host=host) for host in PRESETS[entry])
        else:
            rules.append(_parse_rule(entry))
    return EgressRules(rules=tuple(rules))


def _parse_rule(entry: str) -> Rule:
    match = _RULE.fullmatch(entry.strip())
    host = clean_host(match["host"]) if match else None
    if match is None or host is None or "." not in host:
        presets = ", ".join(PRESETS)
        raise EgressError(f"'{entry}' is no host for egress: write a preset ({presets}), a host, *.host or host:port")
    port = int(match["port"]) if match["port"] else None
    if port is not None and not 0 < port < 65_536:
        raise EgressError(f"'{entry}' names no port that exists")
    if match["wild"] and host.replace(".", "").isdigit():
        raise EgressError(f"'{entry}': an address has no names below it")
    return Rule(host=host, below=bool(match["wild"]), port=port)


def clean_host(text: str) -> str | None:
    """The one spelling of a host name that rules compare: small letters, ASCII, no last dot; None: not a host name."""
    host = text.removesuffix(".")
    if not host.isascii():
        try:
            host = host.encode("idna").decode()
        except UnicodeError:
            return None
    host = host.lower()
    return host if len(host) <= 253 and _HOST.fullmatch(host) else None


@dataclass(frozen=True, kw_only=True)
class Target:
    host: str
    port: int


def parse_target(text: str, default_port: int | None = None) -> Target | None:
    """`host:port` of a CONNECT or of a URL; None: not one (IPv6 literals are not: no rule can name them)."""
    host, colon, port = text.rpartition(":")
    if not colon:
        host, port = text, ""
    if port == "" and default_port is not None and not colon:
        port = str(default_port)
    clean = clean_host(host)
    if clean is None or not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) < 65_536:
        return None
    return Target(host=clean, port=int(port))
