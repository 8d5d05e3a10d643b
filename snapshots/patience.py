"""Waits for another git in the user's working tree: perhaps a merge of ours whose daemon was killed, still writing.

Such a git is left to finish, never killed: half a checkout and a lock that stays would be worse than a late answer.
"""

from __future__ import annotations

import os
import time

from snapshots.checkouts import Checkout
from snapshots.git import TIMEOUT_S

PATIENCE_S = 60.0
_POLL_S = 0.2
# git lets go of the index a moment before it moves the branch.
_SETTLE_S = 0.5


def wait_for_index(checkout: Checkout, patience_s: float) -> bool:
    """Wait until nobody has the index locked, at most so long; did it have to wait (so that all is to be read anew)?

    A lock that is older than any git of ours may run is a leftover, and not waited for.
    """
    deadline = time.monotonic() + patience_s
    waited = False
    while _age_s(checkout) < TIMEOUT_S:
        waited = True
        if time.monotonic() >= deadline:
            return True
        time.sleep(_POLL_S)
    if waited:
        time.sleep(_SETTLE_S)
    return waited


def _age_s(checkout: Checkout) -> float:
    """Of the lock on the index; endless when there is none."""
    try:
        return time.time() - os.lstat(checkout.git_dir / "index.lock").st_mtime
    except FileNotFoundError:
        return float("inf")
