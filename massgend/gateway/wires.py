"""The providers' wire formats: which paths exist, which headers and query parameters may pass. PURE.

Everything that is not named here is refused or dropped: files, batches, administration, sessions, other hosts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import parse_qsl, urlencode


class Wire(StrEnum):
    ANTHROPIC = "anthropic"
    OPENAI = "openai"
    GEMINI = "gemini"


class Operation(StrEnum):
    MESSAGES = "messages"
    COUNT_TOKENS = "count_tokens"
    CHAT = "chat"
    RESPONSES = "responses"
    GENERATE = "generate"
    STREAM_GENERATE = "stream_generate"
    LIST_MODELS = "list_models"


GENERATING = frozenset(
    {Operation.MESSAGES, Operation.CHAT, Operation.RESPONSES, Operation.GENERATE, Operation.STREAM_GENERATE}
)
"""What costs tokens: needs an allowed model and a budget, and is metered."""


@dataclass(frozen=True, kw_only=True)
class Provider:
    """A place where models are had. `name` is the first part of its paths on the socket, and its name among the keys.

    `base_url` as the provider's own tools take it: for OpenAI's wire format with `/v1`, for the others without.
    """

    name: str
    wire: Wire
    base_url: str
    key_variables: tuple[str, ...] = ()
    base_url_variable: str | None = None


def _openai_like(name: str, base_url: str, variable: str) -> Provider:
    return Provider(name=name, wire=Wire.OPENAI, base_url=base_url, key_variables=(variable,))


PROVIDERS: tuple[Provider, ...] = (
    Provider(
        name="anthropic",
        wire=Wire.ANTHROPIC,
        base_url="https://api.anthropic.com",
        key_variables=("ANTHROPIC_API_KEY",),
        base_url_variable="ANTHROPIC_BASE_URL",
    ),
    Provider(
        name="openai",
        wire=Wire.OPENAI,
        base_url="https://api.openai.com/v1",
        key_variables=("OPENAI_API_KEY",),
        base_url_variable="OPENAI_BASE_URL",
    ),
    Provider(
        name="gemini",
        wire=Wire.GEMINI,
        base_url="https://generativelanguage.googleapis.com",
        key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        base_url_variable="GOOGLE_GEMINI_BASE_URL",
    ),
    _openai_like("xai", "https://api.x.ai/v1", "XAI_API_KEY"),
    _openai_like("zai", "https://api.z.ai/api/paas/v4", "ZAI_API_KEY"),
    _openai_like("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    _openai_like("cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    _openai_like("fireworks", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
    _openai_like("together", "https://api.together.xyz/v1", "TOGETHER_API_KEY"),
    _openai_like("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
)
"""Known without any configuration; keys.toml changes and adds."""

DEFAULT_PROVIDER = "anthropic"
"""Whose paths also stand without a prefix (`/v1/messages`)."""

OAUTH_BETA = "oauth-2025-04-20"

_ID = r"(?P<model>[A-Za-z0-9][A-Za-z0-9._@-]{0,199})"
_VERBS = {
    "generateContent": Operation.GENERATE,
    "streamGenerateContent": Operation.STREAM_GENERATE,
    "countTokens": Operation.COUNT_TOKENS,
}
_PATHS: dict[Wire, tuple[tuple[str, re.Pattern[str], Operation | None], ...]] = {
    Wire.ANTHROPIC: (
        ("POST", re.compile(r"/v1/messages"), Operation.MESSAGES),
        ("POST", re.compile(r"/v1/messages/count_tokens"), Operation.COUNT_TOKENS),
        ("GET", re.compile(rf"/v1/models(/{_ID})?"), Operation.LIST_MODELS),
    ),
    Wire.OPENAI: (
        ("POST", re.compile(r"/v1/chat/completions"), Operation.CHAT),
        ("POST", re.compile(r"/v1/responses"), Operation.RESPONSES),
        ("GET", re.compile(rf"/v1/models(/{_ID})?"), Operation.LIST_MODELS),
    ),
    Wire.GEMINI: (
        ("POST", re.compile(rf"/v1(?:beta)?/models/{_ID}:(?P<verb>[A-Za-z]+)"), None),
        ("GET", re.compile(rf"/v1(?:beta)?/models(/{_ID})?"), Operation.LIST_MODELS),
    ),
}
_QUERY = frozenset({"beta", "alt", "limit", "after_id", "before_id", "pageSize", "pageToken"})

_HEADERS = frozenset(
    {
        "accept",
        "anthropic-version",
        "anthropic-beta",
        "anthropic-dangerous-direct-browser-access",
        "content-type",
        "conversation_id",
        "idempotency-key",
        "openai-beta",
        "originator",
        "session_id",
        "user-agent",
        "version",
        "x-app",
        "x-goog-api-client",
    }
)
_HEADER_PREFIXES = ("x-stainless-",)


@dataclass(frozen=True, kw_only=True)
class Call:
    """A path of the socket, understood. `path` and `query` are what the upstream is asked for, after its base URL.

    `model` stands in the path for Gemini; the others name it in the body.
    """

    provider: Provider
    operation: Operation
    path: str
    query: str = ""
    model: str | None = None

    @property
    def generates(self) -> bool:
        return self.operation in GENERATING


def find_provider(raw_path: str, providers: Mapping[str, Provider]) -> tuple[Provider, str]:
    """The provider that a path of the socket belongs to, and the rest of it. Never fails: errors need a format."""
    first, slash, rest = raw_path[1:].partition("/")
    if first in providers:
        return providers[first], slash + rest
    return providers[DEFAULT_PROVIDER], raw_path


def find_call(method: str, raw_path: str, providers: Mapping[str, Provider]) -> Call | None:
    """What is asked, from the path as it came (nothing is decoded, so nothing can be hidden); None: not allowed."""
    path, _, query = raw_path.partition("?")
    provider, rest = find_provider(path, providers)
    for wanted, pattern, operation in _PATHS[provider.wire]:
        match = pattern.fullmatch(rest)
        if match is None or method != wanted:
            continue
        found = match.groupdict()
        if operation is None:
            operation = _VERBS.get(found["verb"])
            if operation is None:
                return None
        return Call(
            provider=provider,
            operation=operation,
            path=rest.removeprefix("/v1") if provider.wire is Wire.OPENAI else rest,
            query=_allowed_query(query),
            model=found.get("model"),
        )
    return None


def _allowed_query(query: str) -> str:
    return urlencode([(name, value) for name, value in parse_qsl(query) if name in _QUERY])


def allowed_headers(given: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The headers that pass to an upstream: credentials and hop-by-hop headers are not among them."""
    passed: dict[str, str] = {}
    for name, value in given:
        low = name.lower()
        if low in _HEADERS or low.startswith(_HEADER_PREFIXES):
            passed[low] = f"{passed[low]},{value}" if low in passed else value
    return passed


def token_candidates(headers: Mapping[str, str], query: Mapping[str, str]) -> tuple[str, ...]:
    """Where CLIs put what they take for their key: the turn's token is looked for in all of them."""
    found = []
    scheme, _, value = headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        found.append(value.strip())
    found += [headers.get("x-api-key", ""), headers.get("x-goog-api-key", ""), query.get("key", "")]
    return tuple(value for value in found if value)
