"""The gateway's pure parts: prices, meters, egress lists, the usage of odd streams."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from massgend.gateway.addresses import is_public
from massgend.gateway.egress_rules import PRESETS, EgressError, parse_egress, parse_target
from massgend.gateway.meter import Budget, Ledger, Meter, Spent
from massgend.gateway.prices import PricesError, load_prices
from massgend.gateway.usage import MAX_EVENT_BYTES, Usage, UsageReader
from massgend.gateway.wires import Operation

MILLION = 1_000_000


def test_every_kind_of_token_has_its_price() -> None:
    usage = Usage(
        input_tokens=MILLION // 10,
        cache_write_tokens=MILLION // 100,
        cache_write_1h_tokens=MILLION // 100,
        cache_read_tokens=MILLION // 100,
        output_tokens=MILLION,
    )
    assert load_prices().cost_usd("claude-opus-4-5", usage) == pytest.approx(0.5 + 0.0625 + 0.1 + 0.005 + 25)


def test_a_long_context_is_priced_as_such() -> None:
    prices = load_prices()
    assert prices.cost_usd("claude-sonnet-4-5", Usage(input_tokens=200_000)) == pytest.approx(0.6)
    assert prices.cost_usd("claude-sonnet-4-5", Usage(input_tokens=100_000, cache_read_tokens=100_001)) == (
        pytest.approx(0.6 + 100_001 * 0.6 / MILLION)
    )


@pytest.mark.parametrize(
    ("model", "known"),
    [
        ("claude-sonnet-4-5", True),
        ("claude-sonnet-4-5-20250929", True),
        ("claude-sonnet-4-5@20250929", True),
        ("gpt-5-2025-08-07", True),
        ("claude-3-5-haiku-latest", True),
        ("claude-sonnet-4-5-turbo", False),
        ("claude-sonnet-9", False),
        ("gpt-5-20", False),
        ("", False),
    ],
)
def test_only_a_dated_name_stands_for_the_models_own(model: str, known: bool) -> None:
    assert load_prices().knows(model) is known


def test_the_users_file_adds_models_and_takes_the_place_of_entries(tmp_path: Path) -> None:
    own = tmp_path / "prices.toml"
    own.write_text('["own"]\ninput = 1\noutput = 2\n["gpt-5"]\ninput = 100\noutput = 0\n')
    prices = load_prices(own)
    assert prices.cost_usd("own", Usage(input_tokens=MILLION, cache_read_tokens=MILLION)) == 2
    assert prices.cost_usd("gpt-5", Usage(input_tokens=MILLION)) == 100
    assert prices.knows("claude-opus-4-5")


@pytest.mark.parametrize(
    "text", ["x", "[own]\ninput = -1\noutput = 1", "[own]\ninput = 1", "[own]\ninput=1\noutput=1\nx=1"]
)
def test_a_price_file_that_is_wrong_is_told(tmp_path: Path, text: str) -> None:
    own = tmp_path / "prices.toml"
    own.write_text(text)
    with pytest.raises(PricesError, match=r"prices\.toml"):
        load_prices(own)


def test_one_call_without_a_price_makes_the_cost_unknown_and_loses_nothing_that_is_known() -> None:
    spent = Spent().plus(Usage(input_tokens=1, complete=True), 0.5).plus(Usage(output_tokens=2, complete=True), None)
    assert (spent.calls, spent.cost_usd, spent.priced_usd, spent.usage.total_tokens) == (2, None, 0.5, 3)


def test_a_restart_goes_on_with_what_was_spent() -> None:
    told: list[tuple[str | None, str]] = []
    spent = Spent(calls=9, usage=Usage(input_tokens=90, complete=True))
    ledger = Ledger(
        run=Meter(budget=Budget(max_tokens=100), spent=spent), agents={}, used_up=lambda *said: told.append(said)
    )
    assert ledger.why_refused("ada") is None
    ledger.add("ada", Usage(output_tokens=10, complete=True), 0.0)
    assert ledger.why_refused("ada") == "the budget of this run is spent: max_tokens of 100 is used up (100 used)"
    assert len(told) == 1


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_allows_its_hosts_on_web_ports_only(preset: str) -> None:
    rules = parse_egress([preset])
    for host in PRESETS[preset]:
        assert rules.allow(host, 443)
        assert not rules.allow(host, 22)
        assert not rules.allow(f"x.{host}.evil.example", 443)


@pytest.mark.parametrize(
    "entry", ["", "*", "*.com:x", "com", "http://x.example", "a b.example", "x.example:0", "*.", "*.1.2"]
)
def test_an_entry_that_cannot_be_understood_is_told(entry: str) -> None:
    with pytest.raises(EgressError):
        parse_egress([entry])


def test_hosts_are_compared_in_one_spelling() -> None:
    rules = parse_egress(["B\u00fccher.Example.", "*.x.example:8443"])
    assert rules.allow("xn--bcher-kva.example", 443)
    assert rules.allow("a.b.x.example", 8443)
    assert not rules.allow("a.x.example", 443)
    assert not rules.allow("x.example", 8443)
    target = parse_target("XN--BCHER-KVA.example.:443")
    assert target is not None
    assert rules.allow(target.host, target.port)


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "93.184.215.14", "2606:4700::1111", "64:ff9b::101:101", "2002:101:101::"]
)
def test_addresses_of_the_internet_are_public(address: str) -> None:
    assert is_public(address)


def test_text_that_looks_like_usage_is_no_usage() -> None:
    reader = UsageReader(Operation.MESSAGES, events=True)
    text = {"type": "content_block_delta", "delta": {"text": '{"usage":{"output_tokens":999}}'}, "usage": "9"}
    reader.feed(b"data: " + json.dumps(text).encode() + b"\n\n")
    assert reader.usage == Usage(output_tokens=1)


@pytest.mark.parametrize("count", [-5, "7", None, 1.5, [], {}])
def test_odd_numbers_are_not_counted(count: object) -> None:
    reader = UsageReader(Operation.CHAT, events=False)
    reader.feed(json.dumps({"usage": {"prompt_tokens": count, "completion_tokens": 3}}).encode())
    reader.finish()
    assert (reader.usage.input_tokens, reader.usage.output_tokens) == (0, 3)


def test_an_event_of_any_length_needs_bounded_memory_and_the_next_one_is_read() -> None:
    reader = UsageReader(Operation.MESSAGES, events=True)
    reader.feed(b"data: ")
    for _ in range(20):
        reader.feed(b"x" * 1024**2)
    assert len(reader._line) <= MAX_EVENT_BYTES
    assert not reader.between_events
    reader.feed(b'\n\ndata: {"type":"message_delta","usage":{"output_tokens":4}}\n\n')
    assert reader.usage.output_tokens == 4
    assert reader.between_events


def test_events_with_crlf_are_read() -> None:
    reader = UsageReader(Operation.CHAT, events=True)
    reader.feed(b'data: {"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":5}}\r\n\r\n')
    assert reader.usage.total_tokens == 9
    assert reader.between_events
