"""The packaged examples, as the README tells them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import git
from tests.support.installed import Installed

pytestmark = pytest.mark.docker


def test_the_website_is_built_improved_on_a_peers_page_voted_for_and_merged(
    installed: Installed, tmp_path: Path
) -> None:
    ended = installed.command("run", "--config", "@examples/website", "--json", cwd=tmp_path)

    assert ended.exit_code == 0, ended.stderr
    result = ended.result
    assert result["status"] == "delivered"
    assert result["scripted"] is True
    assert len(result["branches"]) == 4
    repository = Path(result["repository"])
    assert (repository / "index.html").exists()
    assert git(repository, "status", "--porcelain") == ""


def test_in_the_bugfix_the_check_decides_against_the_votes(installed: Installed, tmp_path: Path) -> None:
    ended = installed.command("run", "--config", "@examples/bugfix", cwd=tmp_path)

    assert ended.exit_code == 0, ended.stderr
    assert "scripted" in ended.stdout
    assert "but it fails the required check" in " ".join(ended.stdout.split())
