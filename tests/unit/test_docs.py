"""What is there is documented, and what is documented is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from massgend.api.schemas import Activity
from massgend.domain import facts, run

DOCS = Path("docs")


def fact_types() -> list[str]:
    return [fact.__dataclass_fields__["type"].default for fact in get_args(facts.Fact)]


@pytest.mark.parametrize("kind", [*fact_types(), Activity.model_fields["type"].default])
def test_every_event_type_is_documented(kind: str) -> None:
    assert f"| `{kind}` |" in (DOCS / "api.md").read_text()


@pytest.mark.parametrize("phase", list(run.Phase))
def test_every_phase_is_documented(phase: run.Phase) -> None:
    assert f"`{phase.value}`" in (DOCS / "coordination.md").read_text()


def test_every_setting_of_the_daemon_is_documented() -> None:
    code = Path("massgend/settings.py").read_text() + Path("massgend/discovery.py").read_text()
    variables = set(re.findall(r'"((?:MASSGEND|DOCKER)_[A-Z_]+)"', code))
    documented = set(re.findall(r"`((?:MASSGEND|DOCKER)_[A-Z_]+)", (DOCS / "settings.md").read_text()))

    assert variables
    assert variables <= documented


def test_every_error_code_is_documented() -> None:
    sources = [Path("massgend/api/app.py"), Path("massgend/api/guard.py"), Path("massgend/orchestrator/service.py")]
    text = "".join(path.read_text() for path in sources)
    codes = set(re.findall(r'problem\(\s*(?:\d+|error\.status_code), "([a-z_]+)"', text))
    codes |= set(re.findall(r'RunRefused\(\s*"([a-z_]+)"', text))

    assert len(codes) > 5
    for code in codes:
        assert f"`{code}`" in (DOCS / "api.md").read_text(), code


def test_every_link_between_the_pages_leads_somewhere() -> None:
    for page in [Path("README.md"), Path("CONTRIBUTING.md"), *DOCS.rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page} -> {target}"


def test_every_test_named_in_the_security_page_exists() -> None:
    for name in re.findall(r"`(tests/[^`]+)`", (DOCS / "security.md").read_text()):
        assert Path(name).exists(), name


def test_decision_notes_are_short() -> None:
    for note in (DOCS / "decisions").glob("*.md"):
        assert len(note.read_text().splitlines()) <= 40, note
