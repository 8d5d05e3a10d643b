"""A key or token that cannot be shown by accident: not by repr, str, format, pickle, JSON or a traceback."""

from __future__ import annotations

import hmac
import re
from typing import Any, NoReturn

_HEADER_SAFE = re.compile(r"[\x21-\x7e]{1,8192}")
_LOOKS_LIKE_A_KEY = re.compile(rb"\b(?:sk|pk|rk|key|gsk|xai|AIza|ya29)[-_.*A-Za-z0-9]{10,}")
HIDDEN = "[redacted]"


class Secret:
    """Holds one secret text; only `reveal` gives it out, for the moment of use.

    Raises ValueError (without the text) for what cannot stand in a header.
    """

    __slots__ = ("_hidden",)

    def __init__(self, text: str) -> None:
        if _HEADER_SAFE.fullmatch(text) is None:
            raise ValueError("a key is one line of visible ASCII characters without spaces")
        self._hidden = text

    def reveal(self) -> str:
        return self._hidden

    def equals(self, given: str) -> bool:
        """Compared in constant time."""
        return hmac.compare_digest(self._hidden.encode(), given.encode(errors="surrogateescape"))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self.equals(other._hidden)

    def __hash__(self) -> int:
        return hash(self._hidden)

    def __repr__(self) -> str:
        return f"Secret({HIDDEN})"

    __str__ = __repr__

    def __format__(self, _spec: str) -> str:
        return repr(self)

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, _memo: dict[int, Any]) -> Secret:
        return self

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError("a Secret is never written anywhere")


def scrub(content: bytes, secrets: tuple[Secret, ...]) -> bytes:
    """`content` without the secrets, and without anything that looks like a provider's key (whole or masked)."""
    for secret in secrets:
        content = content.replace(secret.reveal().encode(), HIDDEN.encode())
    return _LOOKS_LIKE_A_KEY.sub(HIDDEN.encode(), content)


class LeakWatch:
    """Says whether a stream has just completed one of the secrets, also over the border of two chunks.

    Holds nothing back: asked before a chunk is passed on, so the chunk that would complete a secret never is.
    """

    def __init__(self, secrets: tuple[Secret, ...]) -> None:
        self._secrets = tuple(secret.reveal().encode() for secret in secrets)
        self._keep = max((len(secret) for secret in self._secrets), default=1) - 1
        self._tail = b""

    def completes(self, chunk: bytes) -> bool:
        seen = self._tail + chunk
        self._tail = seen[-self._keep :] if self._keep else b""
        return any(secret in seen for secret in self._secrets)
