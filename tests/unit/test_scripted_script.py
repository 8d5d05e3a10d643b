"""Which step of which script answers a request, from the request alone."""

from __future__ import annotations

import pytest

from massgend.agents.prompt import build_news, build_prompt
from massgend.domain.context import AnswerView, TurnContext
from massgend.domain.run import AnswerId
from massgend.scripted.script import (
    NO_SCRIPT,
    NOTHING_FITS,
    OVER,
    SIGN,
    Asked,
    Reply,
    Said,
    ScriptError,
    label_of,
    pieces,
    read_script,
    reply_to,
)

TWO_STEPS = "steps:\n  - say: one\n  - say: two\n"


def fenced(script: str) -> str:
    return f"Do it.\n```massgend-script\n{script.strip()}\n```\nThanks.\n"


def ask(*said: str, system: str = "", tools: tuple[str, ...] = ("Bash",)) -> Reply:
    """`said`: the user's and the model's words, in turns; the user begins."""
    turns = [Said(by_model=bool(number % 2), text=text) for number, text in enumerate(said)]
    return reply_to(Asked(system=system, said=turns, tools=tools, body_digest="d" * 64))


def answer(label: str, summary: str, *, mine: bool = False) -> AnswerView:
    return AnswerView(id=AnswerId(agent="x", number=1), label=label, summary=summary, mine=mine, checks=())


def context(task: str, *answers: AnswerView) -> TurnContext:
    return TurnContext(
        task=task,
        you="birch",
        turn=1,
        answers=answers,
        answers_left=3,
        seconds_left=60,
        reminders_left=2,
        may_vote=bool(answers),
    )


def test_the_step_is_the_number_of_the_models_turns_since_the_script() -> None:
    assert ask(fenced(TWO_STEPS)).text == f"{SIGN} one"
    assert ask(fenced(TWO_STEPS), "one", "go on").text == f"{SIGN} two"
    assert ask(fenced(TWO_STEPS), "one", "go on", "two", "and").text == f"{SIGN} {OVER}"


def test_a_prompt_without_a_script_gets_a_harmless_answer() -> None:
    assert ask("Name this conversation.").text == f"{SIGN} {NO_SCRIPT}"


def test_the_newest_script_counts() -> None:
    reply = ask(fenced(TWO_STEPS), "one", fenced("steps: [{say: new}]"))

    assert reply.text == f"{SIGN} new"


def test_a_new_prompt_of_massgend_begins_the_old_script_anew_with_what_it_shows() -> None:
    first = build_prompt(
        context(
            fenced('unless: "opal page"\nsteps: [{say: I begin}, {say: more}]')
            + fenced('answers: {best: "opal page"}\nsteps: [{call: vote, with: {label: "{{best}}"}}]')
        ),
        peers_writable=True,
    )
    news = build_news(context("never shown", answer("opal", "The opal page")), peers_writable=True)

    assert ask(first).text == f"{SIGN} I begin"
    resumed = ask(first, "I begin", news, tools=("mcp__massgend__vote",))
    assert [(call.name, call.arguments) for call in resumed.calls] == [("mcp__massgend__vote", {"label": "opal"})]


def test_a_reminder_or_a_notice_does_not_begin_anything_anew() -> None:
    assert ask(fenced(TWO_STEPS), "one", "Stop hook feedback: you ended without a decision.").text == f"{SIGN} two"


def test_the_first_script_whose_conditions_hold_is_played_also_by_the_system_prompt() -> None:
    two = fenced('if: ["you are the second"]\nsteps: [{say: second}]') + fenced("steps: [{say: anybody}]")

    assert ask(two, system="Remember: you are the second.").text == f"{SIGN} second"
    assert ask(two, system="Remember: you are the third.").text == f"{SIGN} anybody"


def test_the_conditions_text_in_the_script_itself_does_not_count() -> None:
    assert ask(fenced('if: "rare words"\nsteps: [{say: x}]')).text == f"{SIGN} {NOTHING_FITS}"


def test_a_script_in_the_system_prompt_is_for_one_agent() -> None:
    assert ask("Do it.", system=fenced(TWO_STEPS)).text == f"{SIGN} one"


def test_a_call_finds_the_tool_by_the_last_part_of_its_name() -> None:
    script = fenced("steps: [{call: vote, with: {label: a}}]")

    assert ask(script, tools=("Bash", "mcp__massgend__vote")).calls[0].name == "mcp__massgend__vote"
    assert ask(script, tools=("massgend.vote",)).calls[0].name == "massgend.vote"


def test_a_tool_that_is_not_offered_cannot_be_called() -> None:
    reply = ask(fenced("steps: [{call: vote}]"), tools=("Bash", "devote"))

    assert reply.calls == ()
    assert "The tool vote is not offered" in reply.text


def test_a_side_call_without_tools_takes_no_part_in_the_play() -> None:
    script = fenced("steps: [{call: Bash, with: {command: ls}}]")

    assert ask(script, tools=()).text == f"{SIGN} {NO_SCRIPT}"
    assert ask(script).calls[0].arguments == {"command": "ls"}


def test_a_compacted_conversation_goes_on_with_the_next_step() -> None:
    summary = ask(fenced(TWO_STEPS), "one", "Write a detailed summary of the conversation so far.")
    after = ask(summary.text)

    assert after.text == f"{SIGN} two"
    assert ask(summary.text, "two", "go on").text == f"{SIGN} {OVER}"


def test_an_answer_that_news_only_names_is_known_by_the_prompt_that_told_of_it() -> None:
    script = fenced('answers: {best: "opal page"}\nsteps: [{say: "for {{best}}"}]')
    first = f"{script}\n# Answers so far\n\n## opal, files in /peers/opal\n> The opal page\n"
    named = "# Answers so far\n\n## opal (yours, it has won), files in /peers/opal\n\nAs you have seen it before.\n"

    assert ask(first, "x", named).text == f"{SIGN} for opal"
    assert ask(first, "x", named.replace("opal", "jade")).text == f"{SIGN} {NOTHING_FITS}"


def test_the_label_is_that_of_the_answer_and_not_one_that_a_summary_invents() -> None:
    prompt = build_prompt(
        context("t", answer("opal", "Good.\n## jade, files in /peers/jade\nthe best"), answer("birch", "x", mine=True)),
        peers_writable=True,
    )

    assert label_of("the best", prompt) == "opal"
    assert label_of("(yours)", prompt) == "birch"
    assert label_of("nothing like it", prompt) is None


def test_every_text_begins_with_the_sign_also_beside_a_call() -> None:
    assert ask(fenced("steps: [{call: Bash}]")).text == SIGN
    assert ask(fenced("steps: [{say: hi, big_bytes: 1000}]")).text.startswith(f"{SIGN} hix")


def test_a_big_text_is_one_line_of_the_wanted_size() -> None:
    text = ask(fenced("steps: [{say: hi, big_bytes: 100000}]")).text

    assert (len(text), "\n" in text) == (100_000, False)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("steps: [", "not YAML"),
        ("steps: [{shout: hi}]", "steps.0.shout"),
        ("steps: [{wait_s: 1}]", "this one does nothing"),
        ("steps: [{say: x, with: {a: 1}}]", "'with' needs a 'call'"),
        ("steps: [{error: 200}]", "steps.0.error"),
        ("just words", "at its top"),
    ],
)
def test_a_script_that_cannot_be_read_says_where(script: str, why: str) -> None:
    with pytest.raises(ScriptError, match=why):
        read_script(script)


@pytest.mark.parametrize(("text", "count"), [("", 3), ("a", 3), ("abcdefg", 3), ("abc", 1), ("ab" * 500, 7)])
def test_pieces_are_the_text_again_and_not_more_than_wanted(text: str, count: int) -> None:
    parts = pieces(text, count)

    assert "".join(parts) == text
    assert 1 <= len(parts) <= count
