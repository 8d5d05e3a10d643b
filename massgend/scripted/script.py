"""The language of scripts, and which step of which script answers a request. PURE and stateless.

A script stands in the prompt, or in the system prompt, in a block fenced as `massgend-script`. The step is the number
of the model's turns since the newest prompt, so parallel and resumed conversations never mix.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Self

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from massgend.agents.prompt import ANSWERS_HEADING

MODEL = "scripted-1"
SIGN = f"[{MODEL}]"
"""Begins every text of the scripted model, so that it can never be taken for a real one's."""

NO_SCRIPT = "ok"
OVER = "The script is over."
NOTHING_FITS = "No script in this prompt fits what is seen."
MAX_TEXT_BYTES = 64 * 1024**2
_BLOCK = re.compile(r"^```massgend-script[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^## (\S+?)(?: \(yours[^)]*\))?, files in ", re.MULTILINE)
_SUMMARISE = ("detailed summary of the conversation", "summary of our conversation")
"""What command line agents ask when they compact a conversation."""

_PLAYED = re.compile(r"^massgend-script-played: (\d+)$", re.MULTILINE)


class ScriptError(ValueError):
    """The script in the prompt cannot be read; the message says why."""


class Fault(StrEnum):
    """Ways to go wrong other than an error status. MIDWAY: after half of a streamed reply."""

    HANG = "hang"
    HANG_MIDWAY = "hang midway"
    CUT_MIDWAY = "cut midway"
    GARBAGE = "garbage"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Call(_Part):
    """`call`: a tool as offered, or the last part of its name (`vote` finds `mcp__massgend__vote`)."""

    call: str
    arguments: Mapping[str, Any] = Field(default_factory=dict, alias="with")


class Usage(_Part):
    input_tokens: int = Field(default=100, alias="in", ge=0)
    output_tokens: int = Field(default=10, alias="out", ge=0)


class Step(_Part):
    """One turn of the model. `say`, then the calls; or an error, or a fault."""

    say: str | None = None
    think: str | None = None
    call: str | None = None
    arguments: Mapping[str, Any] = Field(default_factory=dict, alias="with")
    calls: tuple[Call, ...] = ()
    wait_s: float = Field(default=0, ge=0, description="Before the first byte.")
    pace_s: float = Field(default=0, ge=0, description="Between two pieces of a streamed text.")
    pieces: int = Field(default=4, ge=1, le=100_000)
    usage: Usage = Usage()
    error: int | None = Field(default=None, ge=400, le=599)
    retry_after_s: int | None = None
    message: str = "a scripted error"
    fault: Fault | None = None
    big_bytes: int = Field(default=0, ge=0, le=MAX_TEXT_BYTES, description="Pads the text to one line this long.")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.arguments and self.call is None:
            raise ValueError("'with' needs a 'call'")
        if self == Step.model_construct(wait_s=self.wait_s):
            raise ValueError("a step says, calls or fails; this one does nothing")
        return self

    def all_calls(self) -> tuple[Call, ...]:
        first = () if self.call is None else (Call.model_validate({"call": self.call, "with": self.arguments}),)
        return first + self.calls


Texts = Annotated[tuple[str, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)]


class Script(_Part):
    """Played when every text of `if` and none of `unless` stands in the prompt, and all `answers` are found.

    `answers`: a name for the label of the first answer whose part of the prompt holds the text; {{name}} stands for it.
    What a prompt of news does not repeat of an answer is looked up in the prompts before it.
    """

    wanted: Texts = Field(default=(), alias="if")
    unless: Texts = ()
    answers: Mapping[str, str] = Field(default_factory=dict)
    steps: tuple[Step, ...]

    def fits(self, seen: str, earlier: Sequence[str]) -> Mapping[str, str] | None:
        """The labels that its names stand for; None: it is not to be played. `earlier`: prompts, the newest first."""
        if any(text not in seen for text in self.wanted) or any(text in seen for text in self.unless):
            return None
        found = {name: _label_in(text, seen, earlier) for name, text in self.answers.items()}
        labels = {name: label for name, label in found.items() if label is not None}
        return labels if len(labels) == len(found) else None


@dataclass(frozen=True, kw_only=True)
class Said:
    """What one side said, in order; several messages of one side in a row are one."""

    by_model: bool
    text: str


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request, whatever its format was: the system prompt, the conversation, the names of the tools offered."""

    system: str
    said: Sequence[Said]
    tools: tuple[str, ...]
    body_digest: str


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What the model answers, before it is written in a format."""

    id: str
    text: str
    calls: tuple[ToolCall, ...]
    step: Step
    thinking: str | None = None


def reply_to(asked: Asked) -> Reply:
    """The reply to a request. Raises ScriptError when the script in it cannot be read."""
    step, labels = _choose(asked)
    if step.error is None and step.fault is None and not asked.tools and step.all_calls():
        step = Step(say=NO_SCRIPT)  # a side call, for example for a title: it takes no part in the play
    calls: list[ToolCall] = []
    missing: list[str] = []
    for number, call in enumerate(step.all_calls()):
        name = _offered(call.call, asked.tools)
        if name is None:
            missing.append(f"The tool {call.call} is not offered in this request.")
            continue
        calls.append(
            ToolCall(id=f"{asked.body_digest[:20]}{number}", name=name, arguments=_filled(call.arguments, labels))
        )
    words = [SIGN, *([_filled(step.say, labels)] if step.say else []), *missing]
    text = " ".join(words)
    return Reply(
        id=asked.body_digest[:24],
        text=text.ljust(step.big_bytes, "x"),
        calls=tuple(calls),
        step=step,
        thinking=f"{SIGN} {step.think}" if step.think else None,
    )


def _choose(asked: Asked) -> tuple[Step, Mapping[str, str]]:
    if asked.said and any(text in asked.said[-1].text for text in _SUMMARISE):
        return Step(say=_summary(asked)), {}
    scene, blocks, played = _scene(asked.said)
    blocks = [*_BLOCK.findall(asked.system), *blocks]
    if not blocks:
        return Step(say=NO_SCRIPT), {}
    seen = _BLOCK.sub("", asked.system + "\n" + (asked.said[scene].text if asked.said else ""))
    earlier = [_BLOCK.sub("", one.text) for one in reversed(asked.said[:scene]) if not one.by_model]
    for block in blocks:
        script = read_script(block)
        labels = script.fits(seen, earlier)
        if labels is not None:
            number = played + sum(one.by_model for one in asked.said[scene:])
            return (script.steps[number] if number < len(script.steps) else Step(say=OVER)), labels
    return Step(say=NOTHING_FITS), {}


def _scene(said: Sequence[Said]) -> tuple[int, list[str], int]:
    """Where the newest prompt stands, the newest scripts, and how many steps a summary says were played."""
    scene: int | None = None
    for number in range(len(said) - 1, -1, -1):
        one = said[number]
        if one.by_model:
            continue
        blocks = _BLOCK.findall(one.text)
        if scene is None and (blocks or ANSWERS_HEADING in one.text):
            scene = number
        if blocks:
            summary = _PLAYED.search(one.text)
            return scene or number, blocks, int(summary[1]) if summary and scene == number else 0
    return scene or 0, [], 0


def _summary(asked: Asked) -> str:
    """What is left of a conversation when it is compacted: the newest prompt with its scripts, and the step."""
    scene, blocks, played = _scene(asked.said[:-1])
    if not blocks:
        return NO_SCRIPT
    prompt = _PLAYED.sub("", _BLOCK.sub("", asked.said[scene].text))
    scripts = "\n".join(f"```massgend-script\n{block}```" for block in blocks)
    number = played + sum(one.by_model for one in asked.said[scene:-1])
    return f"A summary.\n\n{prompt}\n\n{scripts}\n\nmassgend-script-played: {number}\n"


def read_script(block: str) -> Script:
    """The script in a block. Raises ScriptError."""
    try:
        return Script.model_validate(yaml.safe_load(block))
    except yaml.YAMLError as error:
        raise ScriptError(f"the script is not YAML: {' '.join(str(error).split())}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ScriptError(f"the script is wrong at {where or 'its top'}: {first['msg']}") from error


def label_of(text: str, seen: str) -> str | None:
    """The label of the first answer in a prompt of ours whose part (heading, summary, checks) holds `text`."""
    headings = list(_HEADING.finditer(seen))
    for number, heading in enumerate(headings):
        end = headings[number + 1].start() if number + 1 < len(headings) else len(seen)
        if text in seen[heading.start() : end].partition("\n# ")[0]:
            return heading[1]
    return None


def _label_in(text: str, seen: str, earlier: Sequence[str]) -> str | None:
    """As `label_of`; of an answer that is only named in `seen`, by what an earlier prompt says of it."""
    shown = {heading[1] for heading in _HEADING.finditer(seen)}
    for prompt in (seen, *earlier):
        label = label_of(text, prompt)
        if label in shown:
            return label
    return None


def _offered(name: str, tools: tuple[str, ...]) -> str | None:
    if name in tools:
        return name
    ends = [tool for tool in tools if re.search(rf"(?:__|[./:]){re.escape(name)}$", tool)]
    return ends[0] if ends else None


def _filled(value: Any, labels: Mapping[str, str]) -> Any:
    """`value` with {{name}} replaced, also deep inside."""
    if isinstance(value, str):
        for name, label in labels.items():
            value = value.replace("{{" + name + "}}", label)
        return value
    if isinstance(value, Mapping):
        return {key: _filled(one, labels) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_filled(one, labels) for one in value]
    return value


def pieces(text: str, count: int) -> list[str]:
    """`text` cut into at most `count` parts of about one length; at least one part."""
    size = max(1, -(-len(text) // count))
    return [text[at : at + size] for at in range(0, len(text), size)] or [""]
