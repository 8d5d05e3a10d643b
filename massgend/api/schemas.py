"""The words of the control API and the configuration file: what clients send and get. Pydantic models only.

Imported by the CLI, so it imports neither fastapi nor docker. Unknown keys are refused everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    StringConstraints,
    field_validator,
    model_validator,
)

from massgend.agents.claude_code_options import ClaudeCodeOptions
from massgend.domain.run import DecidedBy, Phase, Status
from snapshots.repository import MergeMode

RESERVED_NAMES = frozenset({"winner", "base", "before-merge", "head"})
NAME_PATTERN = r"[A-Za-z][A-Za-z0-9_-]{0,39}"
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)


def parse_size(value: object) -> object:
    """`2g`, `512m`, `1.5 GiB` or a number of bytes -> bytes (k, m, g, t are powers of 1024)."""
    if not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise ValueError(f"'{value}' is not a size: write for example 512m or 2g")
    return int(float(match[1]) * 1024 ** " kmgt".index(match[2].lower() or " "))


def _check_name(name: str) -> str:
    if re.fullmatch(NAME_PATTERN, name) is None:
        raise ValueError(f"'{name}' is not a name: use letters, digits, - and _, beginning with a letter, at most 40")
    if name.lower() in RESERVED_NAMES:
        raise ValueError(f"the name '{name}' is taken by massgend: choose another")
    return name


Name = Annotated[str, AfterValidator(_check_name)]
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200_000)]
Seconds = Annotated[float, Field(gt=0, le=30 * 86_400, allow_inf_nan=False)]
Size = Annotated[int, BeforeValidator(parse_size, json_schema_input_type=int | str)]


Cost = Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False)]
Tokens = Annotated[int, Field(gt=0)]


class Model(BaseModel):
    # Built at the first use: a command uses few of them, and building them all takes longer than its call.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class CommandAgent(Model):
    """Any program: a bash script run in /workspace that calls massgend-answer or massgend-vote."""

    name: Name
    kind: Literal["command"]
    run: Text = Field(description="A bash script, run in /workspace.")


class ClaudeCodeAgent(ClaudeCodeOptions):
    """Claude Code in the sandbox; the keys stay outside."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    name: Name
    kind: Literal["claude-code"]
    model: Text | None = Field(default=None, description="The model; default: Claude Code's own.")
    max_cost: Cost | None = Field(default=None, description="US dollars that this agent may use.")
    max_tokens: Tokens | None = Field(default=None, description="Tokens that this agent may use.")


AgentConfig = Annotated[CommandAgent | ClaudeCodeAgent, Field(discriminator="kind")]

KINDS: tuple[str, ...] = ("command", "claude-code")


class CheckConfig(Model):
    name: Name
    run: Text = Field(description="A command run with bash on each answer's snapshot; exit code 0 passes.")
    required: bool = Field(
        default=True, description="An answer that fails a required check cannot win while one passes."
    )
    timeout_s: Seconds = 300.0


class LimitsConfig(Model):
    answers: int = Field(default=3, ge=1, le=100, description="Answers an agent may submit.")
    turns: int = Field(default=12, ge=1, le=1000, description="Turns an agent may take, restarts included.")
    turn_s: Seconds = Field(default=1800.0, description="Seconds one turn may take.")
    run_s: Seconds = Field(default=7200.0, description="Seconds the run may take.")
    wrap_up_s: Annotated[float, Field(ge=0, le=86_400)] = Field(
        default=120.0, description="Seconds before a limit at which agents are told."
    )
    first_turn_protection_s: Annotated[float, Field(ge=0, le=86_400)] = Field(
        default=300.0, description="Seconds for which a first turn is not interrupted by a peer's answer."
    )
    restart_grace_s: Annotated[float, Field(ge=0, le=600)] = Field(
        default=5.0, description="Seconds an agent gets to finish its current step before a restart."
    )
    max_cost: Cost | None = Field(default=None, description="US dollars that the run may use.")
    max_tokens: Tokens | None = Field(default=None, description="Tokens that the run may use.")
    max_failures: int = Field(default=3, ge=1, le=100, description="Failures in a row after which an agent is out.")
    max_reminders: int = Field(default=2, ge=0, le=100, description="Reminders to an undecided agent.")
    backoff_s: Annotated[float, Field(ge=0, le=300)] = Field(
        default=2.0, description="Seconds before a failed turn is tried again; doubles each time."
    )


class ModelsConfig(Model):
    allow: list[Text] = Field(default_factory=lambda: ["*"], description="Models agents may call; * and ? are allowed.")
    map: dict[str, str] = Field(default_factory=dict, description="Asked name: the name at the provider.")
    provider_tools: bool = Field(default=False, description="May a request have the provider reach the internet?")


class SandboxConfig(Model):
    image: Text = Field(default="massgend/sandbox", description="Docker image with bash, git and python3 >= 3.8.")
    memory: Annotated[Size, Field(ge=64 * 1024**2)] = Field(default=2 * 1024**3, description="For example 2g.")
    cpus: Annotated[float, Field(gt=0, le=1024)] = 1.0
    pids: int = Field(default=512, ge=16, le=1_000_000, description="Processes and threads.")
    runtime: Text | None = Field(default=None, description="Another OCI runtime of the engine, for example runsc.")


class DiscloseConfig(Model):
    identities: bool = Field(default=False, description="Show agents' names to voters.")
    votes: bool = Field(default=False, description="Show vote counts to voters.")


class RunConfig(Model):
    """The configuration file. `task` may come from the command line instead."""

    task: Text | None = None
    agents: list[AgentConfig] = Field(default_factory=list, max_length=64)
    checks: list[CheckConfig] = Field(default_factory=list, max_length=64)
    limits: LimitsConfig = Field(default_factory=LimitsConfig)
    sandbox: SandboxConfig = Field(default_factory=SandboxConfig)
    merge: MergeMode = MergeMode.AUTO
    include_dirty: bool = Field(default=False, description="Take uncommitted changes of the checkout along.")
    allow_self_vote: bool = Field(default=True, description="May an agent vote for its own answer?")
    disclose: DiscloseConfig = Field(default_factory=DiscloseConfig)
    models: ModelsConfig = Field(default_factory=ModelsConfig)
    egress: list[Text] = Field(default_factory=list, description="Hosts that agents may reach: presets or names.")
    presentation: bool | None = Field(
        default=None,
        description="Does the winner polish its answer in a last turn? Default: with claude-code agents.",
    )
    planning: bool = Field(default=False, description="Effects outside are described until the winner's last turn.")
    scripted_model: Text | None = Field(
        default=None, description="Scripts that massgend's scripted model plays in place of any provider's model."
    )

    @field_validator("agents", "checks")
    @classmethod
    def _distinct(cls, named: list[Any]) -> list[Any]:
        seen: set[str] = set()
        for one in named:
            if one.name.lower() in seen:
                raise ValueError(f"the name '{one.name}' is used twice")
            seen.add(one.name.lower())
        return named


class RunRequest(RunConfig):
    """POST /runs: a complete configuration. `repository` None: start from an empty base, deliver to `deliver_to`."""

    task: Text
    agents: list[AgentConfig] = Field(min_length=1, max_length=64)
    repository: Path | None = None
    deliver_to: Path | None = None
    record: Path | None = Field(default=None, description="A new file for the run's model traffic, without keys.")
    replay: Path | None = Field(default=None, description="A record that answers in place of any provider.")
    scripted: bool = Field(default=False, description="The agents are scripts, and every output says so.")

    @model_validator(mode="after")
    def _absolute(self) -> RunRequest:
        for path in (self.repository, self.deliver_to, self.record, self.replay):
            if path is not None and not path.is_absolute():
                raise ValueError(f"the path '{path}' must be absolute")
        if self.record is not None and self.replay is not None:
            raise ValueError("a run is recorded or replayed, not both")
        return self


class CheckView(Model):
    agent: str
    number: int
    name: str
    required: bool
    passed: bool
    exit_code: int | None
    duration_s: float
    tail: str = ""


class AnswerView(Model):
    agent: str
    label: str
    number: int
    summary: str
    commit: str
    changed_files: int
    about: tuple[str, ...]
    forced: bool
    accepted_at: float


class VoteView(Model):
    """`valid`: it counted in the end; a void vote was cast without, or before, a newer answer."""

    voter: str
    agent: str
    number: int
    reason: str
    valid: bool
    cast_at: float


class TallyView(Model):
    agent: str
    number: int
    votes: int
    checks_passed: int
    eligible: bool


class HostView(Model):
    """Requests of an agent to a host outside; `refused`: they were not let out."""

    host: str
    port: int
    refused: bool
    requests: int
    size_bytes: int


class UsageView(Model):
    """What an agent used, by the providers' own numbers. `cost_usd` null: unknown, a call had no known price."""

    calls: int
    input_tokens: int
    cache_write_tokens: int
    cache_write_1h_tokens: int
    cache_read_tokens: int
    output_tokens: int
    cost_usd: float | None
    hosts: tuple[HostView, ...]


class AgentView(Model):
    name: str
    label: str
    kind: str
    model: str | None
    phase: Phase
    turn: int
    answers: int
    failures: int
    last_failure: str | None
    usage: UsageView | None
    workspace: Path


class MergeView(Model):
    """What came of the merge: `commands` are to be typed next, to finish by hand or to undo."""

    merged: bool
    mode: str
    reason: str
    branch: str | None = None
    before: str | None = None
    after: str | None = None
    folder: str | None = None
    conflicts: tuple[str, ...] = ()
    risky: tuple[str, ...] = ()
    stat: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


class RunView(Model):
    """A run as it stands, or as it ended: the same object everywhere (`type` is always `result`)."""

    type: Literal["result"] = "result"
    run_id: str
    status: Status
    reason: str
    task: str
    scripted: bool
    repository: Path | None
    base_commit: str | None
    base_branch: str | None
    winner: str | None
    winner_answer: int | None
    decided_by: DecidedBy | None
    overruled: bool
    answers: tuple[AnswerView, ...]
    votes: tuple[VoteView, ...]
    tally: tuple[TallyView, ...]
    checks: tuple[CheckView, ...]
    branches: Mapping[str, str]
    merge: MergeView | None
    presentation: str | None = Field(description="What came of the winner's last turn; null: there was none.")
    agents: tuple[AgentView, ...]
    warnings: tuple[str, ...]
    trouble: tuple[str, ...]
    limits: LimitsConfig
    limit_reached: bool
    requested_at: float
    started_at: float | None
    ended_at: float | None


class RunLine(Model):
    """One run in a list."""

    run_id: str
    status: Status
    task: str
    agents: tuple[str, ...]
    winner: str | None
    repository: Path | None
    requested_at: float
    ended_at: float | None


class Created(Model):
    run_id: str
    status: Status
    warnings: tuple[str, ...] = ()


class KeyView(Model):
    """Where a provider's key lies; never the key."""

    provider: str
    where: str
    scheme: str
    base_url: str
    problem: str | None


class KeysView(Model):
    """`variables`: what a client's environment may hand over. `file`: where keys can be written, mode 0600."""

    keys: tuple[KeyView, ...]
    variables: tuple[str, ...]
    file: Path


class KeysOffer(Model):
    """A client's own variables, of those that `KeysView.variables` names: kept in the daemon's memory only."""

    environment: dict[str, str] = Field(repr=False)


class KeyGiven(Model):
    """A key for one provider. `save`: write it to the file; otherwise it is kept in the daemon's memory only."""

    key: SecretStr
    save: bool = False


class KeyTestView(Model):
    provider: str
    works: bool
    detail: str


class Activity(Model):
    """What an agent does at this moment; sent on the stream, never journalled, without an id."""

    type: Literal["activity"] = "activity"
    at: float
    agent: str
    line: str = Field(description="The last line of output, control characters removed, at most 200 characters.")
    changed_files: int = Field(description="Files changed in the workspace since the turn began, as far as was seen.")


class MergeRequest(Model):
    """POST /merges: works from the branches in the repository alone. `agent` None: the run's winner."""

    repository: Path
    run_id: str
    agent: str | None = None
    into: str | None = None
    mode: MergeMode = MergeMode.AUTO


class GcRequest(Model):
    dry_run: bool = True
    force: bool = False
    run_ids: tuple[str, ...] = ()


class GcLine(Model):
    run_id: str
    status: str
    age_s: float
    size_bytes: int
    merged: bool
    action: Literal["delete", "keep"]
    why: str


class GcView(Model):
    dry_run: bool
    lines: tuple[GcLine, ...]
    freed_bytes: int


class Health(Model):
    version: str
    pid: int
    instance: str
    state: Path
    docker_host: str
    runs_under_way: int
    started_at: float


class DoctorLine(Model):
    name: str
    ok: bool
    detail: str
    advice: str = ""


class Problem(BaseModel):
    """application/problem+json (RFC 9457); `code` is stable, `detail` one plain sentence for people."""

    model_config = ConfigDict(frozen=True)

    title: str
    status: int
    detail: str
    code: str
