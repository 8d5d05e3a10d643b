"""What a command agent finds in its context file."""

from __future__ import annotations

import json
from dataclasses import replace

from massgend.agents.command import context_json
from massgend.domain.context import AnswerView, TurnContext
from massgend.domain.run import AnswerId

CONTEXT = TurnContext(
    task="t",
    you="birch",
    turn=2,
    answers=(AnswerView(id=AnswerId(agent="bob", number=1), label="opal", summary="s", mine=False, checks=()),),
    answers_left=2,
    seconds_left=12.7,
    reminders_left=2,
    may_vote=True,
)


def test_the_context_file_holds_what_the_documentation_says() -> None:
    context = json.loads(context_json(CONTEXT))

    assert {"task", "you", "turn", "answers", "answers_left", "seconds_left"} <= context.keys()
    assert context["answers"] == [{"label": "opal", "summary": "s", "mine": False, "path": "/peers/opal", "checks": []}]
    assert context["seconds_left"] == 12


def test_the_context_file_holds_no_real_name() -> None:
    assert "bob" not in context_json(CONTEXT)
    shown = replace(CONTEXT, answers=(replace(CONTEXT.answers[0], agent="bob"),))
    assert json.loads(context_json(shown))["answers"][0]["agent"] == "bob"
