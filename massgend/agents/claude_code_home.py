"""What a sandbox already holds for Claude Code: the session of the last turn, and the repository's CLAUDE.md."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass

from sandboxes.sandbox import Sandbox, Stream

MAX_INSTRUCTIONS_BYTES = 48 * 1024
LOOK_WITHIN_S = 20.0
MAX_LOOK_BYTES = 256 * 1024
_SESSION = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.jsonl")
_LOOK = f"""
[ -f CLAUDE.md ] && head -c {MAX_INSTRUCTIONS_BYTES} CLAUDE.md
printf '\\0'
ls -t "$HOME/.claude/projects/-workspace" 2>/dev/null | head -n 200
"""


@dataclass(frozen=True, kw_only=True)
class Found:
    """`session`: the id of the newest one in the agent's HOME, which is kept between turns and daemons."""

    session: str | None
    instructions: str


async def look_inside(sandbox: Sandbox) -> Found:
    """Looked up inside, so that no path of the agent's is followed on the host. Empty when it takes too long."""
    content = b""
    try:
        async with asyncio.timeout(LOOK_WITHIN_S), sandbox.run(("bash", "-c", _LOOK), grace_s=0) as process:
            async for chunk in process.output():
                if chunk.stream is Stream.STDOUT and len(content) < MAX_LOOK_BYTES:
                    content += chunk.content
    except TimeoutError:
        return Found(session=None, instructions="")
    return read_look(content)


def read_look(content: bytes) -> Found:
    """PURE: what the look printed."""
    instructions, _, listing = content.partition(b"\0")
    names = listing.decode(errors="replace").splitlines()
    sessions = [match[1] for name in names if (match := _SESSION.fullmatch(name))]
    return Found(session=sessions[0] if sessions else None, instructions=instructions.decode(errors="replace"))
