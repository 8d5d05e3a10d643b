"""How a run's end reads at 80 columns, and the exit code that goes with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.errors import Exit
from cli.follow import exit_code
from cli.next_steps import Place, next_steps
from cli.report import merge_report, report
from massgend.api.schemas import RunView
from massgend.domain.run import Status
from tests.support.run_views import answer, check, host, merge, usage, view

HERE = Place(folder=Path("/repo/src"), repository=Path("/repo"))
AWAY = Place(folder=Path("/home"), repository=None)


def lines(shown: RunView, *, width: int = 80, place: Place = HERE) -> list[str]:
    return [line.plain for line in [*report(shown, width=width), *next_steps(shown, width=width, place=place)]]


def test_a_delivered_run_reads_well_at_eighty_columns() -> None:
    assert lines(view()) == [
        "",
        "Delivered massgend/k3m9q2/winner was merged into main (fast-forward).",
        "Why       bob's answer 1 won with 2 of 2 votes.",
        "",
        "  answer  votes  checks       files  summary",
        "* bob.1       2  unit passed      2  better",
        "  ada.1       0  unit FAILED      2  plain",
        "",
        "Votes     ada -> bob.1  it works",
        "          bob -> bob.1  it works",
        "Check     ada.1 fails unit: AssertionError: 2 != 3",
        "",
        "Branches  massgend/k3m9q2/ada massgend/k3m9q2/bob massgend/k3m9q2/winner",
        "Changed   index.html | 3 +++",
        "          1 file changed, 3 insertions(+)",
        "",
        "Next      massgend diff k3m9q2  # what it changed",
        "          massgend diff k3m9q2 ada  # what ada changed",
        "          git switch massgend/k3m9q2/ada  # try ada's work",
        "          massgend merge k3m9q2 ada  # take ada's instead: undo first; FAILED unit",
        "Undo      git -C /repo reset --keep abc",
    ]


def test_commands_name_the_repository_for_who_stands_elsewhere() -> None:
    shown = lines(view(), place=AWAY)
    assert "Next      massgend diff k3m9q2 --repo /repo  # what it changed" in shown
    below = lines(view(), place=Place(folder=Path("/"), repository=None))
    assert "Next      massgend diff k3m9q2 --repo repo  # what it changed" in below


def test_commands_are_never_clipped() -> None:
    command = "git -C /" + "long/" * 40 + "repo reset --keep abc"
    assert f"Undo      {command}" in lines(view(merge=merge(commands=(command,))), width=60)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_all_but_commands_fits_the_width(width: int) -> None:
    long = view(
        answers=(answer("ada", summary="word " * 90), answer("bob", summary="\x1b[31m" + "x" * 300)),
        reason="reason " * 40,
        merge=merge(risky=(".envrc", ".github/workflows/x.yml"), stat=tuple(f" f{n} | 1 +" for n in range(40))),
        warnings=("warning " * 30,),
        trouble=("trouble " * 30,),
    )
    for line in report(long, width=width):
        assert line.cell_len <= width
        assert "\x1b" not in line.plain


def test_risky_files_are_warned_of() -> None:
    shown = "\n".join(lines(view(merge=merge(risky=(".envrc", "a\nb")))))
    assert "Careful   it brought files that can run code on your side; look at them first:" in shown
    assert ".envrc, a b" in shown


def test_a_decision_that_was_not_merged_says_why_and_how() -> None:
    refused = merge(merged=False, reason="you have uncommitted changes in a.", commands=("git stash", "git merge x"))
    shown = lines(view(status=Status.DECIDED, merge=refused))
    assert shown[1:4] == [
        "Decided, not merged: bob's answer 1 won with 2 of 2 votes.",
        "Merge     you have uncommitted changes in a.",
        "",
    ]
    assert shown[-2:] == ["By hand   git stash", "          git merge x"]


def test_scripted_agents_are_said_to_be_scripted() -> None:
    assert "(scripted agents)" in lines(view(scripted=True))[1]


def test_what_a_snapshot_left_out_is_said_with_its_answer() -> None:
    about = ("left out (larger than 100 MiB): big\x1b[2J.bin", "left out (a socket): s")
    left_out = answer("bob", summary="better").model_copy(update={"about": about})
    shown = lines(view(answers=(answer("ada"), left_out)))
    assert "About     bob.1: left out (larger than 100 MiB): big.bin" in shown
    assert "          bob.1: left out (a socket): s" in shown


def test_what_came_of_the_winners_last_turn_is_said() -> None:
    assert "Last turn The answer was polished; its checks pass." in lines(
        view(presentation="The answer was polished; its checks pass.")
    )


def test_what_came_of_the_last_turn_is_said_once() -> None:
    said = "bob changed nothing more."
    shown = lines(view(presentation=said, reason=f"bob's answer 1 won. {said}"))
    assert "\n".join(shown).count(said) == 1


def test_trouble_is_said() -> None:
    assert "Trouble   the branch of ada is not there" in lines(view(trouble=("the branch of ada is not there",)))


def using(*used: object) -> RunView:
    agents = tuple(agent.model_copy(update={"usage": one}) for agent, one in zip(view().agents, used, strict=True))
    return view(agents=agents)


def test_what_each_agent_used_is_said() -> None:
    assert not any(line.startswith("Used") for line in lines(using(None, None)))
    shown = lines(using(usage(), usage(cost_usd=None, output_tokens=2_000_000)))
    begin = shown.index("Used      ada  12.2k tokens in, 950 out, 3 calls, $0.12")
    assert shown[begin + 1] == "          bob  12.2k tokens in, 2.0M out, 3 calls, cost unknown"
    assert shown[begin + 2] == "          all  24.5k tokens in, 2.0M out, 6 calls, cost unknown"


def test_the_hosts_that_agents_reached_or_wanted_are_said() -> None:
    none = usage(calls=0, hosts=(host("pypi.org", requests=4), host("evil\x1b[2J.example", refused=True)))
    shown = lines(using(None, none))
    assert "Used      bob  reached pypi.org:443 (4 times)" in shown
    assert "               refused evil.example:443" in shown


def test_an_answer_that_failed_is_not_offered_without_saying_so() -> None:
    narrow = [line for line in lines(view(), width=60) if "massgend merge k3m9q2 ada" in line]
    assert narrow
    assert "FAILED unit" in narrow[0], "also where the note does not fit"


def test_the_other_answer_that_is_offered_is_the_best_of_them() -> None:
    good = answer("zoe", summary="fine")
    checks = (check("ada", passed=False), check("bob", passed=True), check("zoe", passed=True))
    branches = {name: f"massgend/k3m9q2/{name}" for name in ("ada", "bob", "kim", "winner", "zoe")}
    shown = "\n".join(lines(view(answers=(*view().answers, good), checks=checks, branches=branches)))
    assert "massgend merge k3m9q2 zoe  # take zoe's instead: undo first" in shown
    assert "massgend merge k3m9q2 ada" not in shown


def test_unfinished_work_is_shown_but_not_offered_to_be_merged() -> None:
    shown = "\n".join(
        lines(
            view(status=Status.CANCELLED, winner=None, winner_answer=None, answers=(), tally=(), votes=(), merge=None)
        )
    )
    assert "massgend diff k3m9q2 ada  # what ada changed" in shown
    assert "massgend merge" not in shown


@pytest.mark.parametrize("mode", ["ask", "branch", "none"])
def test_a_winner_that_was_not_merged_is_offered_first(mode: str) -> None:
    waiting = view(status=Status.DECIDED, merge=merge(merged=False, mode=mode, commands=()))
    assert "Next      massgend merge k3m9q2  # take it" in lines(waiting)
    bare = waiting.model_copy(update={"branches": {"bob": "massgend/k3m9q2/bob"}})
    assert "Next      massgend merge k3m9q2 bob  # take it" in lines(bare), "there is no winner's branch to name"
    failed = waiting.model_copy(update={"checks": (check("bob", passed=False),)})
    assert "Next      massgend merge k3m9q2  # take it: FAILED unit" in lines(failed)


def test_a_failed_run_says_what_failed_and_where_to_read() -> None:
    agents = tuple(agent.model_copy(update={"last_failure": "it crashed\nat line 3"}) for agent in view().agents)
    failed = view(
        status=Status.FAILED, reason="Every agent failed.", answers=(), votes=(), tally=(), checks=(), branches={},
        merge=None, winner=None, winner_answer=None, agents=agents,
    )  # fmt: skip
    shown = lines(failed)
    assert shown[1] == "Failed    Every agent failed."
    assert "Failure   ada: it crashed" in shown
    assert shown[-1] == "Next      massgend logs k3m9q2 ada  # what it said"


def test_a_running_run_can_be_followed() -> None:
    running = view(status=Status.RUNNING, winner=None, winner_answer=None, merge=None, tally=(), votes=(), reason="")
    assert lines(running)[-1] == "Next      massgend attach k3m9q2  # follow it"


def test_what_a_merge_did_is_told_with_its_undo() -> None:
    assert [line.plain for line in merge_report(merge(), width=80)] == [
        "Merged    massgend/k3m9q2/winner was merged into main (fast-forward).",
        "          index.html | 3 +++",
        "          1 file changed, 3 insertions(+)",
        "Undo      git -C /repo reset --keep abc",
    ]


@pytest.mark.parametrize(
    ("shown", "interrupted", "code"),
    [
        (view(), False, Exit.DONE),
        (view(), True, Exit.DONE),
        (view(status=Status.DECIDED, merge=merge(merged=False)), False, Exit.NOT_MERGED),
        (view(status=Status.DECIDED, merge=merge(merged=False, mode="squash")), False, Exit.NOT_MERGED),
        (view(status=Status.DECIDED, merge=None), False, Exit.NOT_MERGED),
        (view(status=Status.DECIDED, merge=merge(merged=False, mode="branch")), False, Exit.DONE),
        (view(status=Status.DECIDED, merge=merge(merged=False, mode="none")), False, Exit.DONE),
        (view(status=Status.DECIDED, merge=merge(merged=False, mode="ask")), False, Exit.DONE),
        (view(status=Status.NO_RESULT), False, Exit.NO_RESULT),
        (view(status=Status.NO_RESULT, limit_reached=True), False, Exit.LIMIT),
        (view(status=Status.FAILED), False, Exit.NO_RESULT),
        (view(status=Status.CANCELLED), True, Exit.INTERRUPTED),
        (view(status=Status.CANCELLED), False, Exit.NO_RESULT),
    ],
)
def test_the_exit_code_follows_from_how_it_ended(shown: RunView, interrupted: bool, code: Exit) -> None:
    assert exit_code(shown, interrupted=interrupted) == code
