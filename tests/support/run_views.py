"""Results and events of runs as the daemon sends them, for tests of what shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from massgend.api.schemas import (
    AgentView,
    AnswerView,
    CheckView,
    Health,
    HostView,
    LimitsConfig,
    MergeView,
    RunView,
    TallyView,
    UsageView,
    VoteView,
)
from massgend.domain.run import DecidedBy, Phase, Status

RUN = "k3m9q2"
START = 1_000.0


def health() -> Health:
    from cli.version import own_version

    return Health(
        version=own_version(),
        pid=1,
        instance="i",
        state=Path("/state"),
        docker_host="unix:///docker.sock",
        runs_under_way=1,
        started_at=START,
    )


def answer(agent: str, number: int = 1, summary: str = "a page") -> AnswerView:
    return AnswerView(
        agent=agent,
        label="oak",
        number=number,
        summary=summary,
        commit="1" * 40,
        changed_files=2,
        about=(),
        forced=False,
        accepted_at=START,
    )


def merge(**changes: Any) -> MergeView:
    made = MergeView(
        merged=True,
        mode="auto",
        reason="massgend/k3m9q2/winner was merged into main (fast-forward).",
        branch="main",
        stat=(" index.html | 3 +++", " 1 file changed, 3 insertions(+)"),
        commands=("git -C /repo reset --keep abc",),
    )
    return made.model_copy(update=changes)


def usage(**changes: Any) -> UsageView:
    made = UsageView(
        calls=3,
        input_tokens=1_000,
        cache_write_tokens=200,
        cache_write_1h_tokens=34,
        cache_read_tokens=11_000,
        output_tokens=950,
        cost_usd=0.1234,
        hosts=(),
    )
    return made.model_copy(update=changes)


def host(name: str, *, refused: bool = False, requests: int = 1) -> HostView:
    return HostView(host=name, port=443, refused=refused, requests=requests, size_bytes=0 if refused else 2048)


def view(**changes: Any) -> RunView:
    """ada and bob answered, bob won with both votes, it was merged."""
    agents = tuple(
        AgentView(
            name=name,
            label="oak",
            kind="command",
            model=None,
            phase=Phase.VOTED,
            turn=2,
            answers=1,
            failures=0,
            last_failure=None,
            usage=None,
            workspace=Path("/state/runs") / name,
        )
        for name in ("ada", "bob")
    )
    made = RunView(
        run_id=RUN,
        status=Status.DELIVERED,
        reason="bob's answer 1 won with 2 of 2 votes.",
        task="make a page",
        scripted=False,
        repository=Path("/repo"),
        base_commit="0" * 40,
        base_branch="main",
        winner="bob",
        winner_answer=1,
        decided_by=DecidedBy.CONSENSUS,
        overruled=False,
        answers=(answer("ada", summary="plain"), answer("bob", summary="better")),
        votes=tuple(
            VoteView(voter=voter, agent="bob", number=1, reason="it works", valid=True, cast_at=START)
            for voter in ("ada", "bob")
        ),
        tally=(
            TallyView(agent="ada", number=1, votes=0, checks_passed=0, eligible=False),
            TallyView(agent="bob", number=1, votes=2, checks_passed=1, eligible=True),
        ),
        checks=(
            check("ada", passed=False),
            check("bob", passed=True),
        ),
        branches={name: f"massgend/{RUN}/{name}" for name in ("ada", "bob", "winner")},
        merge=merge(),
        presentation=None,
        agents=agents,
        warnings=(),
        trouble=(),
        limits=LimitsConfig(),
        limit_reached=False,
        requested_at=START,
        started_at=START,
        ended_at=START + 10,
    )
    return made.model_copy(update=changes)


def check(agent: str, *, passed: bool) -> CheckView:
    return CheckView(
        agent=agent,
        number=1,
        name="unit",
        required=True,
        passed=passed,
        exit_code=0 if passed else 1,
        duration_s=0.1,
        tail="" if passed else "line\nAssertionError: 2 != 3\n",
    )


def facts() -> list[tuple[str, dict[str, Any]]]:
    """The stream's facts of the same run, oldest first."""
    decision = {
        "winner": {"agent": "bob", "number": 1},
        "by": "consensus",
        "reason": "bob's answer 1 won with 2 of 2 votes.",
        "tally": [],
        "overruled": False,
    }
    told: list[tuple[str, dict[str, Any]]] = [
        ("run_created", {"task": "make a page", "agents": ["ada", "bob"], "scripted": False}),
        ("run_started", {"base_commit": "0" * 40, "branch": "main", "warnings": []}),
        ("turn_requested", {"agent": "ada", "turn": 1, "sees": [], "notice": None}),
        ("turn_began", {"agent": "ada", "turn": 1}),
        ("answer_submitted", {"agent": "ada", "summary": "plain"}),
        ("answer_accepted", accepted("ada", "plain")),
        ("answer_checked", {"agent": "ada", "number": 1, "checks": [check("ada", passed=False).model_dump()]}),
        ("answer_accepted", accepted("bob", "better")),
        ("turn_requested", {"agent": "ada", "turn": 2, "sees": ["ada.1", "bob.1"], "notice": None}),
        ("vote_cast", {"agent": "ada", "votes_for": "bob", "number": 1, "reason": "it works", "valid": True}),
        ("run_decided", {"decision": decision}),
        ("run_ended", {"status": "delivered", "reason": "", "branches": {}, "trouble": []}),
    ]
    return [
        (kind, {"type": kind, "run": RUN, "at": START + number, **content})
        for number, (kind, content) in enumerate(told)
    ]


def accepted(agent: str, summary: str) -> dict[str, Any]:
    return {
        "agent": agent,
        "number": 1,
        "summary": summary,
        "commit": "1" * 40,
        "changed_files": 2,
        "about": [],
        "votes_voided": 0,
        "forced": False,
    }
