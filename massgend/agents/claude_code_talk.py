"""One talk with a running claude CLI: from its first prompt to the end of the turn, bounded in time.

The SDK's client is used by the task that connected it, and by no other.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ClaudeSDKError,
    Message,
    ProcessError,
    RateLimitEvent,
    ResultMessage,
    SystemMessage,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)

from massgend.agents import claude_code_end as end
from massgend.agents.agent import Desk, OutcomeKind, TurnOutcome
from massgend.agents.claude_code_command import cli_argv, cli_environment
from massgend.agents.claude_code_decisions import Decisions
from massgend.agents.claude_code_options import Patience
from massgend.agents.claude_code_show import Screen
from massgend.agents.claude_code_transport import SandboxTransport
from sandboxes.errors import SandboxError
from sandboxes.sandbox import Sandbox

END_GRACE_S = 2.0
"""For the CLI to write its session down once its stdin is closed."""

INTERRUPT_WITHIN_S = 1.0
TOO_MANY_REQUESTS = 429


class CannotResume(Exception):
    """The CLI refused the session that it was to go on with; start a new one."""


Heard = ResultMessage | TurnOutcome | ClaudeSDKError | SandboxError | None
"""What a talk ended with; None: the CLI said no more."""


class Talk:
    """One start of the CLI. `now`: seconds since the epoch."""

    def __init__(
        self,
        sandbox: Sandbox,
        desk: Desk,
        decisions: Decisions,
        *,
        patience: Patience,
        now: Callable[[], float],
        command: Callable[[Sequence[str]], tuple[str, ...]] = tuple,
    ) -> None:
        self._sandbox = sandbox
        self._command = command
        self._desk = desk
        self._decisions = decisions
        self._patience = patience
        self._now = now
        self._screen = Screen(desk)
        self._tools_running: set[str] = set()
        self._limit_s: float | None = None
        self._told_to_wait_s = 0.0
        self._heard_model = False
        self._deadline = asyncio.timeout(None)
        self._listening = False

    async def hold(self, options: ClaudeAgentOptions, prompt: str, *, token: str, cli: str) -> TurnOutcome:
        """Say `prompt`, listen until the turn ends. Raises CannotResume, and what sandboxes raise."""
        argv = self._command(cli_argv(options, cli))
        async with self._sandbox.run(argv, env=cli_environment(token), grace_s=END_GRACE_S) as process:
            transport = SandboxTransport(process, self._desk.show)
            try:
                heard: Heard = await self._converse(ClaudeSDKClient(options, transport), prompt)
            except ClaudeSDKError as error:
                heard = error
            return await self._outcome(heard, transport, resumed=options.resume is not None)

    async def _converse(self, client: ClaudeSDKClient, prompt: str) -> Heard:
        try:
            async with asyncio.timeout(self._patience.start_s):
                with sdk_errors():
                    await client.connect()
        except TimeoutError:
            return end.failed(f"Claude Code did not start within {self._patience.start_s:g} s")
        try:
            await client.query(prompt)
            async with asyncio.TaskGroup() as tasks:
                beside = [
                    tasks.create_task(self._pass_notices()),
                    tasks.create_task(self._leave_when_decided()),
                ]
                heard = await self._listen(client)
                for task in beside:
                    task.cancel()
            return heard
        finally:
            await client.disconnect()

    async def _listen(self, client: ClaudeSDKClient) -> Heard:
        try:
            async with self._deadline:
                self._listening = True
                self._be_patient()
                async for message in _messages(client):
                    self._screen.show(message)
                    self._note(message)
                    if isinstance(message, ResultMessage):
                        return message
        except TimeoutError:
            return end.failed(f"the model sent nothing for {self._patience.silence_s:g} s")
        except (ClaudeSDKError, SandboxError) as error:
            return error
        except asyncio.CancelledError:
            await _interrupt(client)
            raise
        finally:
            self._listening = False
        return None

    async def _pass_notices(self) -> None:
        while True:
            self._decisions.tell(await self._desk.next_notice())

    async def _leave_when_decided(self) -> None:
        await self._desk.wait_decided()
        self._be_patient()

    def _note(self, message: Message) -> None:
        match message:
            case AssistantMessage():
                self._heard_model = True
                self._tools_running |= {block.id for block in message.content if isinstance(block, ToolUseBlock)}
            case UserMessage(content=list() as blocks):
                self._tools_running -= {one.tool_use_id for one in blocks if isinstance(one, ToolResultBlock)}
            case RateLimitEvent(rate_limit_info=info) if info.status == "rejected":
                self._limit_s = None if info.resets_at is None else max(0.0, info.resets_at - self._now())
            case SystemMessage(subtype="api_retry", data={"retry_delay_ms": int() | float() as wait_ms} as told):
                self._told_to_wait_s = wait_ms / 1000
                if told.get("error_status") == TOO_MANY_REQUESTS:
                    self._limit_s = self._told_to_wait_s
            case _:
                self._told_to_wait_s = 0.0
        if not self._desk.decided:
            self._be_patient()

    def _be_patient(self) -> None:
        """Set how long the next message may take: a running tool is bounded by the turn's own limit only."""
        if not self._listening or self._deadline.expired():
            return
        now = asyncio.get_running_loop().time()
        if self._desk.decided:
            self._deadline.reschedule(now + self._patience.linger_s)
        else:
            wait_s = self._told_to_wait_s + self._patience.silence_s
            self._deadline.reschedule(None if self._tools_running else now + wait_s)

    async def _outcome(self, heard: Heard, transport: SandboxTransport, *, resumed: bool) -> TurnOutcome:
        if self._desk.decided:
            return TurnOutcome(kind=OutcomeKind.DECIDED)
        if isinstance(heard, SandboxError):
            raise heard
        if resumed and not self._heard_model and end.is_refusal(heard):
            raise CannotResume(str(heard))
        if isinstance(heard, TurnOutcome):
            return heard
        if isinstance(heard, ResultMessage):
            return end.of_result(heard, limit_s=self._limit_s)
        if heard is None:
            return end.failed("Claude Code ended in the middle of its turn")
        state = await self._sandbox.describe() if isinstance(heard, ProcessError) else None
        return end.of_error(heard, transport.stderr, out_of_memory=state is not None and state.out_of_memory)


async def _interrupt(client: ClaudeSDKClient) -> None:
    """Ask the CLI to stop, so that its session stays in order; whatever comes of it, it is ended after that."""
    with contextlib.suppress(ClaudeSDKError, SandboxError, TimeoutError):
        async with asyncio.timeout(INTERRUPT_WITHIN_S):
            with sdk_errors():
                await client.interrupt()


async def _messages(client: ClaudeSDKClient) -> AsyncIterator[Message]:
    messages = client.receive_messages()
    while True:
        with sdk_errors():
            try:
                message = await anext(messages)
            except StopAsyncIteration:
                return
        yield message


@contextlib.contextmanager
def sdk_errors() -> Iterator[None]:
    """Whatever the SDK raises over what the CLI sent becomes ClaudeSDKError.

    It raises bare Exception for an error that the CLI answers, and KeyError and its like for a message of another form;
    and what comes out of a sandbox can be of any form.
    """
    try:
        yield
    except (ClaudeSDKError, SandboxError, TimeoutError):
        raise
    except Exception as error:
        raise ClaudeSDKError(str(error) if type(error) is Exception else repr(error)) from error
