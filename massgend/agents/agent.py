"""The agent noun: what an adapter gets for a turn, what it hands in, and how a turn ends. Values and protocols only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Protocol, runtime_checkable

from massgend.domain.context import TurnContext
from massgend.domain.run import Choice
from massgend.domain.task import AgentSpec
from sandboxes.sandbox import BindMount, Chunk, Sandbox

WORKSPACE = PurePosixPath("/workspace")
HOME = PurePosixPath("/home/agent")
PEERS = PurePosixPath("/peers")
GATEWAY = PurePosixPath("/run/gateway")
FORWARDER = ("python3", "-I", "/opt/massgend/forwarder.py", "--")
"""Sets the proxy variables for one program, and carries what it sends there to the gateway."""


@dataclass(frozen=True, kw_only=True)
class AgentTurn:
    """One turn as an adapter sees it. `gateway` (host) is mounted read-only at /run/gateway inside.

    Files that an adapter writes into `gateway` are seen inside at once. `peers_writable`: peers' views have a scratch.
    `egress`: the run allows some hosts.
    """

    spec: AgentSpec
    context: TurnContext
    gateway: Path
    peers_writable: bool
    egress: bool = False

    def command(self, argv: Sequence[str]) -> tuple[str, ...]:
        """How `argv` is started inside: with a way to the hosts that the run allows, when it allows any."""
        return (*FORWARDER, *argv) if self.egress else tuple(argv)


class OutcomeKind(StrEnum):
    DECIDED = "decided"
    UNDECIDED = "undecided"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class TurnOutcome:
    """How the program ended by itself. `reason`: one plain sentence unless decided."""

    kind: OutcomeKind
    reason: str = ""
    retry_after_s: float | None = None


class Desk(Protocol):
    """Where an agent hands in, and where news reaches it. One desk a turn; used from the adapter's task only."""

    async def hand_in(self, choice: Choice) -> str | None:
        """Hand the decision in; None: it was taken and journalled; else why not, one sentence for the agent."""

    def show(self, chunk: Chunk) -> None:
        """Output for the agent's log and the user's view. Never blocks; floods are bounded."""

    @property
    def decided(self) -> bool:
        """A decision of this turn was taken."""

    async def wait_decided(self) -> None: ...

    async def next_notice(self) -> str:
        """The next thing the agent is to be told in its running turn (a restart is coming, time is short)."""


class Agent(Protocol):
    """One kind of agent. Stateless: everything of a turn is in its arguments."""

    async def take_turn(self, turn: AgentTurn, sandbox: Sandbox, desk: Desk) -> TurnOutcome:
        """Run the agent until it has decided or ended.

        Cancelling ends everything that the agent started, inside the sandbox too. Sandbox errors pass through.
        """


@dataclass(frozen=True, kw_only=True)
class SandboxNeeds:
    """What a kind of agent wants in its container beside what every one has. `mounts` are read-only."""

    mounts: tuple[BindMount, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


@runtime_checkable
class NeedsOfSandbox(Protocol):
    """An agent that needs more in its container than an image and the gateway; asked before the container starts."""

    def needs(self, spec: AgentSpec) -> SandboxNeeds: ...
