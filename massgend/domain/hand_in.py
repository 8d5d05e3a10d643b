"""May an agent hand this in now? The desk asks before it accepts; the machine asks the same. PURE."""

from __future__ import annotations

from massgend.domain.run import Choice, NewAnswer, Phase, Run, Stage

MAX_SUMMARY_CHARS = 20_000
MAX_REASON_CHARS = 4_000


def refusal(run: Run, name: str, step: int, choice: Choice) -> str | None:
    """Why not, in one plain sentence for the agent; None: it is taken."""
    agent = run.agents.get(name)
    if agent is None or agent.turn is None or agent.turn.step != step:
        return "This turn is over; nothing was taken."
    if agent.phase is Phase.ENDING or agent.phase is Phase.FREEZING:
        return "You have decided in this turn already; your first decision stands."
    if agent.phase not in (Phase.STARTING, Phase.WORKING, Phase.STOPPING):
        return "This turn is over; nothing was taken."
    if run.stage not in (Stage.RUNNING, Stage.SETTLING, Stage.PRESENTING):
        return "The run has ended; nothing was taken."
    if isinstance(choice, NewAnswer):
        return _answer_refusal(run, name, choice)
    if run.stage is Stage.PRESENTING:
        return "The vote is over and your answer has won: hand in its final form as a new answer."
    labels = {run.agents[which.agent].label for which in agent.turn.context}
    if not labels:
        return "There is no answer to vote for yet: submit one yourself with massgend-answer."
    if choice.label not in labels:
        return f"No answer is labelled '{choice.label}'. The labels are: {', '.join(sorted(labels))}."
    if choice.label == agent.label and not run.task.allow_self_vote:
        return "Voting for your own answer is switched off in this run: vote for another, or submit a better one."
    if len(choice.reason) > MAX_REASON_CHARS:
        return f"The reason is {len(choice.reason)} characters long; at most {MAX_REASON_CHARS} are taken."
    return None


def _answer_refusal(run: Run, name: str, choice: NewAnswer) -> str | None:
    limit = run.task.limits.answers
    if run.agents[name].answers >= limit and run.stage is not Stage.PRESENTING:
        return f"You have submitted all your {limit} answers: vote for one."
    if not choice.summary.strip():
        return "An answer needs a summary: say in a few sentences what you did and how you checked it."
    if len(choice.summary) > MAX_SUMMARY_CHARS:
        return f"The summary is {len(choice.summary)} characters long; at most {MAX_SUMMARY_CHARS} are taken."
    return None
