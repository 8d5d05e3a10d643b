"""Becoming somebody else, for tests of repositories that do not belong to the daemon's user."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

UID = 1234


def give_away(path: Path, uid: int = UID) -> None:
    """The tree at `path` belongs to another user, who can reach it. Skips the test when we are not root."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    for step in path.parents:
        if step.stat().st_uid == os.geteuid() and step != Path("/"):
            step.chmod(step.stat().st_mode | 0o055)
    subprocess.run(["chown", "-R", f"{uid}:{uid}", path], check=True)
