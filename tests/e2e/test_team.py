"""The main job on real containers: parallel agents, peers' snapshots, votes, the merge, nothing left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import git, make_repository
from tests.support.installed import Ended, Installed, agent, write_config

pytestmark = pytest.mark.docker


def team(*agents: str, more: str = "") -> str:
    lines = "".join(f"  - {one}\n" for one in agents)
    return f"task: make a page\nagents:\n{lines}{more}"


# Each waits until all three containers run at once: they can only meet if they are truly parallel, and each leaves its
# time of arrival and departure in its answer.
MEETING = """
    if [ ! -e {name}.txt ]; then
      date +%s.%N > {name}.txt; sleep 2; date +%s.%N >> {name}.txt
      massgend-answer "{name} was here"; exit
    fi
    massgend-vote "$(answers 'a[0]["label"]')" --reason first
"""


def test_three_agents_work_at_the_same_time_in_three_containers(
    installed: Installed, repository: Path, tmp_path: Path
) -> None:
    config = write_config(tmp_path, team(*(agent(name, MEETING.format(name=name)) for name in ("ada", "bob", "cyd"))))
    ended = installed.run(repository, config)

    assert ended.exit_code == 0, ended.stderr
    spans = []
    for name in ("ada", "bob", "cyd"):
        branch = ended.result["branches"][name]
        spans.append([float(line) for line in git(repository, "show", f"{branch}:{name}.txt").splitlines()])
    assert max(came for came, _ in spans) < min(left for _, left in spans), "they did not overlap"


AUTHOR = """
    if [ ! -e tool.sh ]; then
      printf 'echo made by the peer; echo ran >> ran.txt; cat ran.txt | wc -l\\n' > tool.sh
      massgend-answer "a tool"; exit
    fi
    test ! -e ran.txt || { echo "somebody changed my workspace" >&2; exit 1; }
    own=$(answers '[x for x in a if x["mine"]][0]["path"]')
    test ! -e "$own/ran.txt" || { echo "somebody changed my snapshot" >&2; exit 1; }
    massgend-vote "$(answers '([x for x in a if "used" in x["summary"]] or a)[0]["label"]')" --reason best
"""
USER = """
    peer=$(answers '" ".join(x["path"] for x in a if x["summary"] == "a tool")')
    if [ -z "$peer" ]; then
      test -e start.txt || { date > start.txt; massgend-answer "nothing yet"; exit; }
      massgend-vote "$(answers 'a[0]["label"]')" --reason "nothing else"; exit
    fi
    if [ ! -e out.txt ]; then
      test ! -e "$peer/ran.txt" || { echo "my scratch outlived its turn" >&2; exit 1; }
      (cd "$peer" && bash tool.sh && bash tool.sh) > out.txt
      massgend-answer "used the peer's tool"; exit
    fi
    test ! -e "$peer/ran.txt" || { echo "my scratch outlived its turn" >&2; exit 1; }
    massgend-vote "$(answers '[x for x in a if x["mine"]][0]["label"]')" --reason "it runs"
"""


def test_a_peers_code_runs_from_its_view_and_what_it_writes_there_is_private_and_gone_after_the_turn(
    installed: Installed, repository: Path, tmp_path: Path
) -> None:
    config = write_config(tmp_path, team(agent("author", AUTHOR), agent("user", USER)))
    ended = installed.run(repository, config)

    assert ended.exit_code == 0, ended.stdout[-3000:]
    assert ended.result["winner"] == "user"
    assert (repository / "out.txt").read_text() == "made by the peer\n1\nmade by the peer\n2\n"
    assert ended.of_type("turn_failed") == [], "an agent saw what it must not see"
    author = ended.result["branches"]["author"]
    assert "ran.txt" not in git(repository, "ls-tree", "-r", "--name-only", author)


def test_a_new_answer_voids_the_votes_and_a_vote_on_a_stale_context_is_void_at_once(
    installed: Installed, repository: Path, tmp_path: Path
) -> None:
    quick = """
        if [ ! -e q.txt ]; then echo q > q.txt; massgend-answer quick; exit; fi
        massgend-vote "$(answers '([x for x in a if x["summary"] == "late"] or a)[0]["label"]')" --reason r
    """
    late = """
        if [ ! -e l.txt ]; then sleep 8; echo l > l.txt; massgend-answer late; exit; fi
        massgend-vote "$(answers '[x for x in a if x["mine"]][0]["label"]')" --reason r
    """
    # Does not see `late`, waits for the news of it, and votes for `quick` all the same within its grace.
    dozer = """
        if [ ! -e d.txt ]; then echo d > d.txt; massgend-answer dozer; exit; fi
        label=$(answers '[x for x in a if x["summary"] == "quick"][0]["label"]')
        answers 'len(a)' | grep -q 3 || until [ -s "$MASSGEND_NOTICE_FILE" ]; do sleep 0.1; done
        massgend-vote "$label" --reason r
    """
    more = "limits: {restart_grace_s: 8}\n"
    agents = (agent("quick", quick), agent("late", late), agent("dozer", dozer))
    ended = installed.run(repository, write_config(tmp_path, team(*agents, more=more)))

    assert ended.exit_code == 0, ended.stderr
    votes = ended.of_type("vote_cast")
    accepted = {event["agent"]: event for event in ended.of_type("answer_accepted")}
    assert accepted["late"]["votes_voided"] >= 1
    stale = [vote for vote in votes if not vote["valid"]]
    assert "dozer" in [vote["agent"] for vote in stale if vote["at"] > accepted["late"]["at"]]
    counted = [vote for vote in ended.result["votes"] if vote["valid"]]
    assert len(counted) == 3
    assert all(vote["cast_at"] > accepted["late"]["at"] for vote in counted)


def test_a_failing_answer_cannot_win_however_it_is_praised(installed: Installed, tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "calc", {"calc.py": "def add(a, b):\n    return a - b\n"})
    praised = """
        if ! grep -q thorough calc.py; then
          printf 'def add(a, b):\\n    # thorough\\n    return b - a\\n' > calc.py; massgend-answer "thorough"; exit
        fi
        massgend-vote "$(answers '[x for x in a if x["summary"] == "thorough"][0]["label"]')" --reason long
    """
    short = """
        if ! grep -q 'a + b' calc.py; then
          printf 'def add(a, b):\\n    return a + b\\n' > calc.py; massgend-answer "plus"; exit
        fi
        massgend-vote "$(answers '([x for x in a if x["summary"] == "thorough"] or a)[0]["label"]')" --reason long
    """
    check = "checks: [{name: unit, run: \"python3 -c 'import calc; assert calc.add(2, 3) == 5'\"}]\n"
    config = write_config(tmp_path, team(agent("praised", praised), agent("short", short), more=check))
    ended = installed.run(repository, config)

    assert ended.result["winner"] == "short"
    assert ended.result["overruled"] is True
    assert "required check unit" in ended.result["reason"]
    assert "a + b" in (repository / "calc.py").read_text()
    assert {(check["agent"], check["passed"]) for check in ended.result["checks"]} == {
        ("praised", False),
        ("short", True),
    }


def test_checks_see_the_snapshot_and_cannot_change_it(installed: Installed, repository: Path, tmp_path: Path) -> None:
    script = "test -e a.txt || { echo a > a.txt; massgend-answer one; exit; }"
    checks = 'checks: [{name: eats, run: "rm -rf a.txt .github; echo x > a.txt; test $(cat a.txt) = x"}]\n'
    ended = installed.run(repository, write_config(tmp_path, team(agent("solo", script), more=checks)))

    assert ended.result["status"] == "delivered"
    assert (repository / "a.txt").read_text() == "a\n"


def test_one_agent_answers_is_checked_and_delivered_without_a_vote(
    installed: Installed, repository: Path, tmp_path: Path
) -> None:
    ended = installed.run(repository, write_config(tmp_path, team(agent("solo", "echo x > x; massgend-answer done"))))

    assert ended.exit_code == 0
    assert ended.result["votes"] == []
    assert ended.result["decided_by"] == "only_agent"
    assert (repository / "x").read_text() == "x\n"


def test_two_runs_on_one_repository_do_not_see_each_other(
    installed: Installed, repository: Path, tmp_path: Path
) -> None:
    config = write_config(tmp_path, team(agent("solo", "sleep 1; echo $RANDOM$RANDOM > $RANDOM; massgend-answer x")))
    processes = [installed.start("run", "--repo", str(repository), "--config", str(config), "--json") for _ in range(2)]
    ended = [Ended(exit_code=p.wait(120), stdout=p.stdout.read(), stderr=p.stderr.read()) for p in processes]  # type: ignore[union-attr]
    for process in processes:
        process.communicate()

    assert [one.exit_code for one in ended] == [0, 0], [one.stderr for one in ended]
    assert len({one.result["run_id"] for one in ended}) == 2
    assert len([name for name in git(repository, "ls-files").splitlines() if name.isdecimal()]) == 2
    assert git(repository, "status", "--porcelain") == ""


def test_nothing_but_massgend_refs_is_left_in_the_repository_and_nothing_in_the_engine(
    installed: Installed, repository: Path, tmp_path: Path
) -> None:
    before = set((repository / ".git").rglob("*"))
    ended = installed.run(
        repository, write_config(tmp_path, team(agent("a", "echo 1 > 1; massgend-answer x"))), "--merge", "branch"
    )

    assert ended.result["status"] == "decided"
    refs = git(repository, "for-each-ref", "--format=%(refname)").splitlines()
    assert [ref for ref in refs if "massgend/" not in ref] == ["refs/heads/main"]
    new = {path.relative_to(repository / ".git") for path in set((repository / ".git").rglob("*")) - before}
    assert {path.parts[0] for path in new} <= {"refs", "objects", "logs"}, new
    assert not (repository / "1").exists()
    assert installed.in_engine() == []
