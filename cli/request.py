"""Command line + configuration file -> RunRequest: flags go before the file, the file before defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from cli.config import complaint, load_config
from cli.errors import Misuse
from cli.example_runs import PREFIX, ExampleRun, find_example
from cli.git import find_root
from cli.text import clean
from massgend.api.schemas import KINDS, AgentConfig, CheckConfig, LimitsConfig, RunConfig, RunRequest, SandboxConfig
from snapshots.repository import MergeMode

DEFAULT_CONFIG = "massgend.yaml"
NO_AGENTS = (
    "no agents: write them under 'agents:' in massgend.yaml (or --config FILE), or name one with "
    "--agent KIND[:MODEL], for example --agent 'command:./agent.sh'"
)
NO_TASK = "no task: say what is to be done, for example: massgend run 'fix the failing test'"

Made = TypeVar("Made", bound=BaseModel)


@dataclass(frozen=True, kw_only=True)
class RunFlags:
    """What stands on the command line of `run`; None or empty: not given."""

    task: str | None = None
    repo: Path | None = None
    output: Path | None = None
    config: str | None = None
    agents: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    merge: str | None = None
    image: str | None = None
    answers: int | None = None
    turns: int | None = None
    turn_s: float | None = None
    run_s: float | None = None
    include_dirty: bool = False
    max_cost: float | None = None
    record: Path | None = None
    replay: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A checked request. `example`: its repository is still to be made, and put into the request."""

    request: RunRequest
    example: ExampleRun | None = None

    @property
    def needs_keys(self) -> bool:
        """Will a provider's model be asked? The keys of this environment are handed over only then."""
        asks = any(agent.kind != "command" for agent in self.request.agents)
        return asks and self.request.scripted_model is None and self.request.replay is None


def plan_run(flags: RunFlags, *, folder: Path) -> Plan:
    """Raises Misuse. `folder`: where the user stands."""
    if flags.record is not None and flags.replay is not None:
        raise Misuse("--record and --replay exclude each other: choose one")
    example = find_example(flags.config) if flags.config and flags.config.startswith(PREFIX) else None
    repository = _repository(flags, folder, example)
    config = _with_flags(_file(flags, repository, example), flags)
    if not config.agents:
        raise Misuse(NO_AGENTS)
    if config.task is None:
        raise Misuse(NO_TASK)
    unpacked = example if example is not None and repository is None else None
    request = RunRequest(
        **{name: getattr(config, name) for name in RunConfig.model_fields},
        repository=folder / "example" if unpacked else repository,
        deliver_to=None if repository or unpacked else _output(flags, folder),
        record=(folder / flags.record).absolute() if flags.record is not None else None,
        replay=(folder / flags.replay).absolute() if flags.replay is not None else None,
        scripted=example is not None,
    )
    return Plan(request=request, example=unpacked)


def _repository(flags: RunFlags, folder: Path, example: ExampleRun | None) -> Path | None:
    found = find_root(folder) if flags.repo is None and example is None else None
    if flags.repo is not None:
        if not (folder / flags.repo).is_dir():
            raise Misuse(f"{flags.repo}: there is no such folder: name an existing repository with --repo")
        found = (folder / flags.repo).resolve()
    if flags.output is not None and (found is not None or example is not None):
        raise Misuse("--output is for runs without a repository: leave it out, the result is merged as --merge says")
    return found


def _output(flags: RunFlags, folder: Path) -> Path:
    if flags.output is not None:
        return (folder / flags.output).absolute()
    names = ("massgend-result", *(f"massgend-result-{number}" for number in range(2, 1000)))
    return next(folder / name for name in names if not (folder / name).exists())


def _file(flags: RunFlags, repository: Path | None, example: ExampleRun | None) -> RunConfig:
    if example is not None:
        return load_config(example.config)
    if flags.config is not None:
        return load_config(Path(flags.config))
    usual = (repository or Path()) / DEFAULT_CONFIG
    return load_config(usual) if repository is not None and usual.is_file() else RunConfig()


def _with_flags(config: RunConfig, flags: RunFlags) -> RunConfig:
    changes: dict[str, Any] = {}
    if flags.task is not None:
        if not flags.task.strip():
            raise Misuse(NO_TASK)
        changes["task"] = flags.task.strip()
    if flags.agents:
        changes["agents"] = [_agent(text, number) for number, text in enumerate(flags.agents, 1)]
    if flags.checks:
        changes["checks"] = [_check(text, number) for number, text in enumerate(flags.checks, 1)]
    if flags.merge is not None:
        changes["merge"] = _merge_mode(flags.merge)
    if flags.include_dirty:
        changes["include_dirty"] = True
    limits = {
        "answers": ("--answers", flags.answers),
        "turns": ("--turns", flags.turns),
        "turn_s": ("--turn-seconds", flags.turn_s),
        "run_s": ("--run-seconds", flags.run_s),
        "max_cost": ("--max-cost", flags.max_cost),
    }
    changes["limits"] = _changed(LimitsConfig, config.limits, limits)
    changes["sandbox"] = _changed(SandboxConfig, config.sandbox, {"image": ("--image", flags.image)})
    return config.model_copy(update=changes)


def _merge_mode(text: str) -> MergeMode:
    try:
        return MergeMode(text)
    except ValueError:
        raise Misuse(f"--merge {clean(text)}: choose one of {', '.join(MergeMode)}") from None


def _agent(text: str, number: int) -> AgentConfig:
    kind, _, rest = text.partition(":")
    if kind not in KINDS:
        raise Misuse(f"--agent {clean(text)}: unknown kind '{clean(kind)}'; kinds: {', '.join(KINDS)}")
    values: dict[str, str] = {"name": f"a{number}", "kind": kind}
    if kind == "command":
        if not rest.strip():
            raise Misuse("--agent command: needs the script to run, for example --agent 'command:./agent.sh'")
        values["run"] = rest
    elif rest:
        values["model"] = rest
    try:
        agent: AgentConfig = TypeAdapter(AgentConfig).validate_python(values)
    except ValidationError as error:
        raise Misuse(f"--agent {clean(text)}: {_first(error)}") from None
    return agent


def _check(text: str, number: int) -> CheckConfig:
    try:
        return CheckConfig(name=f"check{number}", run=text)
    except ValidationError as error:
        raise Misuse(f"--check {clean(text)}: {_first(error)}") from None


def _changed(model: type[Made], standing: Made, flags: Mapping[str, tuple[str, object]]) -> Made:
    """`standing` with the given flags, checked; a complaint names the flag."""
    given = {field: value for field, (_, value) in flags.items() if value is not None}
    try:
        return model.model_validate({**standing.model_dump(), **given})
    except ValidationError as error:
        field = str(error.errors()[0]["loc"][0])
        raise Misuse(f"{flags[field][0]}: {_first(error)}") from None


def _first(error: ValidationError) -> str:
    fault = error.errors(include_url=False)[0]
    return complaint(fault, fault["loc"])
