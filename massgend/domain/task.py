"""What the user asked for: one task, its agents, checks and limits. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from snapshots.repository import MergeMode


@dataclass(frozen=True, kw_only=True)
class AgentSpec:
    """One agent of the run. `options` belong to its kind (for `command`: `run`)."""

    name: str
    kind: str
    model: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    max_cost_usd: float | None = None
    max_tokens: int | None = None


@dataclass(frozen=True, kw_only=True)
class CheckSpec:
    """A command run on each answer's snapshot in a sandbox of its own; exit code 0 passes."""

    name: str
    run: str
    required: bool = True
    timeout_s: float = 300.0


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of a run (rule 9). Seconds are wall clock."""

    answers: int = 3
    turns: int = 12
    turn_s: float = 1800.0
    run_s: float = 7200.0
    wrap_up_s: float = 120.0
    first_turn_protection_s: float = 300.0
    restart_grace_s: float = 5.0
    max_failures: int = 3
    max_reminders: int = 2
    backoff_s: float = 2.0
    max_cost_usd: float | None = None
    max_tokens: int | None = None


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """Which models agents may call (names with `*` and `?`), and under which names providers know them.

    `provider_tools`: may a request have the provider itself reach the internet? `scripted`: massgend's own scripted
    model answers, and no provider is asked.
    """

    allow: tuple[str, ...] = ("*",)
    map: Mapping[str, str] = field(default_factory=dict)
    provider_tools: bool = False
    scripted: bool = False


@dataclass(frozen=True, kw_only=True)
class SandboxSettings:
    image: str = "massgend/sandbox"
    memory_bytes: int = 2 * 1024**3
    cpus: float = 1.0
    pids: int = 512
    runtime: str | None = None


@dataclass(frozen=True, kw_only=True)
class Disclosure:
    """What voters are told beyond rule 2; both off unless it is to be measured (rule 11)."""

    identities: bool = False
    votes: bool = False


@dataclass(frozen=True, kw_only=True)
class Task:
    """One run as requested: immutable, complete, journalled first."""

    text: str
    agents: tuple[AgentSpec, ...]
    repository: Path | None
    checks: tuple[CheckSpec, ...] = ()
    limits: Limits = Limits()
    sandbox: SandboxSettings = SandboxSettings()
    merge: MergeMode = MergeMode.AUTO
    include_dirty: bool = False
    allow_self_vote: bool = True
    presentation: bool = False  # the winner gets one more turn to polish its answer (rule 12)
    planning: bool = False  # effects outside wait for the presentation, which is then part of the run (rule 14)
    disclose: Disclosure = Disclosure()
    models: ModelSettings = field(default_factory=ModelSettings)
    egress: tuple[str, ...] = ()
    record: Path | None = None
    replay: Path | None = None
    deliver_to: Path | None = None
    scripted: bool = False
