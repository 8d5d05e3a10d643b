"""Does a key work? One cheap call to its provider, which costs nothing: the list of models."""

from __future__ import annotations

from dataclasses import dataclass

from massgend.gateway.bodies import Prepared
from massgend.gateway.refusals import Refusal
from massgend.gateway.secret import Secret
from massgend.gateway.upstream import Outgoing, Upstream
from massgend.gateway.wires import Call, Operation, Provider, Wire

_LISTS = {
    Wire.ANTHROPIC: ("/v1/models", "limit=1"),
    Wire.OPENAI: ("/models", ""),
    Wire.GEMINI: ("/v1beta/models", "pageSize=1"),
}


@dataclass(frozen=True, kw_only=True)
class KeyTest:
    """`detail`: one sentence for people, never the key."""

    provider: str
    works: bool
    detail: str


async def try_key(upstream: Upstream, provider: Provider) -> KeyTest:
    """Never raises for what the provider or the network says."""
    path, query = _LISTS[provider.wire]
    call = Call(provider=provider, operation=Operation.LIST_MODELS, path=path, query=query)
    outgoing = Outgoing(agent="", prepared=Prepared(call=call, body=b""), headers={}, token=Secret("no-turn"))
    try:
        async with upstream.open(outgoing):
            return KeyTest(provider=provider.name, works=True, detail=f"{provider.name} accepts the key")
    except Refusal as refusal:
        return KeyTest(provider=provider.name, works=False, detail=refusal.message.removeprefix("massgend: "))
