"""What tokens cost: our table, and the user's file over it. A model without an entry has no price; none is guessed."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from massgend.gateway.usage import Usage

_DATED = re.compile(r"(.+?)(?:[-@]\d{8}|-\d{4}-\d{2}-\d{2}|-latest)")
_MILLION = 1_000_000


class PricesError(Exception):
    """The user's price file cannot be used; the message says why and where."""


class _Rates(BaseModel):
    model_config = ConfigDict(extra="forbid")
    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cache_write: float | None = Field(default=None, ge=0)
    cache_write_1h: float | None = Field(default=None, ge=0)
    cache_read: float | None = Field(default=None, ge=0)


class _Above(_Rates):
    input_tokens: int = Field(ge=1)


class _Entry(_Rates):
    above: _Above | None = None


_TABLE = TypeAdapter(dict[str, _Entry])


@dataclass(frozen=True, kw_only=True)
class Prices:
    """US dollars by model. `load_prices` makes one."""

    entries: Mapping[str, _Entry]

    def knows(self, model: str) -> bool:
        return self._find(model) is not None

    def cost_usd(self, model: str, usage: Usage) -> float | None:
        """None: the price is unknown."""
        entry = self._find(model)
        if entry is None:
            return None
        rates: _Rates = entry
        if entry.above is not None and usage.all_input_tokens > entry.above.input_tokens:
            rates = entry.above
        total = (
            usage.input_tokens * rates.input
            + usage.cache_write_tokens * _or(rates.cache_write, rates.input)
            + usage.cache_write_1h_tokens * _or(rates.cache_write_1h, rates.input)
            + usage.cache_read_tokens * _or(rates.cache_read, rates.input)
            + usage.output_tokens * rates.output
        )
        return total / _MILLION

    def _find(self, model: str) -> _Entry | None:
        if model in self.entries:
            return self.entries[model]
        dated = _DATED.fullmatch(model)
        return self.entries.get(dated[1]) if dated else None


def _or(rate: float | None, default: float) -> float:
    return default if rate is None else rate


def load_prices(own: Path | None = None) -> Prices:
    """Our table, with the entries of the user's file `own` (when it exists) over it. Raises PricesError."""
    entries = _parse(resources.files("massgend.gateway").joinpath("prices.toml").read_text("utf-8"), "our prices.toml")
    if own is not None and own.exists():
        try:
            text = own.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PricesError(f"the price file {own} cannot be read: {error}") from None
        entries |= _parse(text, str(own))
    return Prices(entries=entries)


def _parse(text: str, name: str) -> dict[str, _Entry]:
    try:
        return _TABLE.validate_python(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise PricesError(f"{name} is not TOML: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise PricesError(f"{name}: {where}: {first['msg']}") from None
