"""Random anonymous labels and ids: nothing about an agent's name, kind or place in the list can be read off them."""

from __future__ import annotations

import random

_WORD_LIST = """
acorn alder amber anise aspen aster basil beech birch briar brook cedar clove cloud coral daisy delta ember fern fjord
flint frost grove hazel heath heron holly iris ivory jade juniper kelp lark laurel lilac linden lotus maple marsh mint
moss myrtle oak olive onyx opal orchid pearl pine plum poppy quartz raven reed river robin rose rowan rye sage sand
slate sorrel spruce stone swift teal thorn thyme tulip umber vale violet willow wren yarrow yew
"""
_WORDS = tuple(_WORD_LIST.split())
_SIGNS = "abcdefghjkmnpqrstuvwxyz23456789"
RUN_ID_CHARS = 10


def new_labels(chance: random.Random, count: int) -> tuple[str, ...]:
    """`count` different labels in random order; with a number behind them when the words run out."""
    words = [word if lap == 0 else f"{word}-{lap + 1}" for lap in range(1 + count // len(_WORDS)) for word in _WORDS]
    return tuple(chance.sample(words, count))


def new_run_id(chance: random.Random) -> str:
    """Ten characters, beginning with a letter."""
    return chance.choice(_SIGNS[:23]) + "".join(chance.choices(_SIGNS, k=RUN_ID_CHARS - 1))
