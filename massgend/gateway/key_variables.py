"""Which environment variables hold keys, and how each key is shown to its provider. PURE; standard library only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from massgend.gateway.secret import Secret
from massgend.gateway.wires import PROVIDERS


class Scheme(StrEnum):
    """How a key stands in a request: as the provider's API key, a bearer token, Claude's OAuth token, not at all."""

    API_KEY = "api_key"
    BEARER = "bearer"
    OAUTH = "oauth"
    NONE = "none"


_TOKENS = {
    "anthropic": (("ANTHROPIC_AUTH_TOKEN", Scheme.BEARER), ("CLAUDE_CODE_OAUTH_TOKEN", Scheme.OAUTH)),
}


def variables() -> tuple[str, ...]:
    """Every variable that `keys_in` looks at: what a client may hand over, and nothing else of its environment."""
    names: list[str] = []
    for provider in PROVIDERS:
        names += [*provider.key_variables, *(name for name, _ in _TOKENS.get(provider.name, ()))]
        names += [provider.base_url_variable] if provider.base_url_variable else []
    return tuple(names)


@dataclass(frozen=True, kw_only=True)
class FoundKey:
    """A key in an environment. `base_url` is that environment's own, for a key goes only where its owner sends it."""

    provider: str
    variable: str
    secret: Secret
    scheme: Scheme
    base_url: str | None


def keys_in(environment: Mapping[str, str]) -> Iterator[FoundKey]:
    """The first key of each provider. A value that cannot be a key is passed over."""
    for provider in PROVIDERS:
        candidates = [(name, Scheme.API_KEY) for name in provider.key_variables]
        for name, scheme in (*candidates, *_TOKENS.get(provider.name, ())):
            value = environment.get(name, "").strip()
            if not value:
                continue
            try:
                secret = Secret(value)
            except ValueError:
                continue
            base_url = environment.get(provider.base_url_variable or "") or None
            yield FoundKey(provider=provider.name, variable=name, secret=secret, scheme=scheme, base_url=base_url)
            break
