"""A turn of the claude-code agent in a real sandbox, with a desk that keeps what happens and the scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from textwrap import dedent

from massgend.agents.agent import AgentTurn, TurnOutcome
from massgend.agents.claude_code import ClaudeCodeAgent
from massgend.agents.claude_code_options import ClaudeCodeOptions, Patience
from massgend.domain.context import AnswerView, TurnContext
from massgend.domain.run import AnswerId, Choice
from massgend.domain.task import AgentSpec
from massgend.scripted.server import serve
from sandboxes.docker_provider import DockerProvider
from sandboxes.sandbox import BindMount, Chunk, Sandbox
from tests.support.sandbox_engine import make_folder, make_spec

TOKEN = "turn-token-of-a-test"


@dataclass(kw_only=True)
class KeepingDesk:
    """Takes every decision, unless `refusals` says no first; keeps what was shown."""

    refusals: list[str] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    shown: bytes = b""
    notices: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    taken: asyncio.Event = field(default_factory=asyncio.Event)

    async def hand_in(self, choice: Choice) -> str | None:
        if self.refusals:
            return self.refusals.pop(0)
        self.choices.append(choice)
        self.taken.set()
        return None

    def show(self, chunk: Chunk) -> None:
        self.shown += chunk.content
        self.changed.set()

    @property
    def decided(self) -> bool:
        return self.taken.is_set()

    async def wait_decided(self) -> None:
        await self.taken.wait()

    async def next_notice(self) -> str:
        return await self.notices.get()

    async def wait_shown(self, text: str, *, within_s: float = 30) -> None:
        async with asyncio.timeout(within_s):
            while text.encode() not in self.shown:
                self.changed.clear()
                await self.changed.wait()


def answer_view(label: str, summary: str, *, mine: bool = False) -> AnswerView:
    return AnswerView(id=AnswerId(agent=f"agent-{label}", number=1), label=label, summary=summary, mine=mine, checks=())


def task_with(*scripts: str) -> str:
    return "Do the work.\n\n" + "\n\n".join(f"```massgend-script\n{dedent(script).strip()}\n```" for script in scripts)


def context(task: str, *answers: AnswerView, reminders_left: int = 2, turn: int = 1) -> TurnContext:
    return TurnContext(
        task=task,
        you="red",
        turn=turn,
        answers=answers,
        answers_left=3,
        seconds_left=600,
        reminders_left=reminders_left,
        may_vote=bool(answers),
    )


@dataclass(kw_only=True)
class ClaudeBench:
    """Folders that outlive a container, as between the turns of one agent."""

    folder: Path
    provider: DockerProvider
    instance: str

    @asynccontextmanager
    async def sandbox(self, *, agent: str = "ada", **changes: object) -> AsyncIterator[Sandbox]:
        """A new container over the same workspace, HOME and gateway."""
        mounts = (
            BindMount(source=make_folder(self.folder / "homes" / agent), target=PurePosixPath("/home/agent")),
            BindMount(source=self.gateway, target=PurePosixPath("/run/gateway"), read_only=True),
            *ClaudeCodeAgent().needs(AgentSpec(name="ada", kind="claude-code")).mounts,
        )
        sandbox = await self.provider.start(make_spec(self.instance, self.folder, *mounts, **changes))
        try:
            yield sandbox
        finally:
            await sandbox.remove()

    @property
    def gateway(self) -> Path:
        return make_folder(self.folder / "gateway")

    @asynccontextmanager
    async def model(self) -> AsyncIterator[list[str]]:
        """The scripted model in the gateway's place; the bodies of the requests for messages that came, as text."""
        socket = self.gateway / "s.sock"
        (self.gateway / "token").write_text(TOKEN)
        bodies: list[str] = []
        async with serve(socket, on_request=lambda path, body: bodies.append(body.decode())):
            socket.chmod(0o666)
            yield bodies
        socket.unlink(missing_ok=True)

    async def turn(
        self,
        sandbox: Sandbox,
        desk: KeepingDesk,
        seen: TurnContext,
        *,
        options: ClaudeCodeOptions | None = None,
        patience: Patience | None = None,
    ) -> TurnOutcome:
        spec = AgentSpec(
            name="ada",
            kind="claude-code",
            model="claude-sonnet-4-5",
            options=(options or ClaudeCodeOptions()).as_options(),
        )
        turn = AgentTurn(spec=spec, context=seen, gateway=self.gateway, peers_writable=True)
        return await ClaudeCodeAgent(patience=patience).take_turn(turn, sandbox, desk)
