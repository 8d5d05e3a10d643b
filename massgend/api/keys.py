"""What may be told of keys: where they lie. Never a key."""

from __future__ import annotations

from massgend.api.schemas import KeysView, KeyView
from massgend.gateway.key_variables import variables
from massgend.gateway.keys import KeyRing


async def keys_view(keys: KeyRing) -> KeysView:
    found = tuple(
        KeyView(
            provider=place.provider,
            where=place.where,
            scheme=place.scheme.value,
            base_url=place.base_url,
            problem=place.problem,
        )
        for place in await keys.places()
    )
    return KeysView(keys=found, variables=variables(), file=keys.path)
