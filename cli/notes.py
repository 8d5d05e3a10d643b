"""Notes beside the output, on stderr. Apart from the screens, so that a command's first words need no rich."""

from __future__ import annotations

import sys

from cli.text import clean


def say(text: str) -> None:
    print(clean(text), file=sys.stderr, flush=True)
