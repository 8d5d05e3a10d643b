"""docs/gateway.md and docs/models.md name everything that there is."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from massgend.gateway.bodies import ModelRules
from massgend.gateway.egress_rules import PRESETS
from massgend.gateway.key_file import KeyEntry
from massgend.gateway.key_variables import Scheme, keys_in
from massgend.gateway.wires import PROVIDERS

DOCS = Path(__file__).resolve().parents[2] / "docs"
GATEWAY = (DOCS / "gateway.md").read_text()
MODELS = (DOCS / "models.md").read_text()


def test_every_preset_is_documented_with_its_hosts() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (`[^|]*`) \|$", GATEWAY, flags=re.MULTILINE))
    documented = {name: tuple(re.findall(r"`([^`]+)`", hosts)) for name, hosts in rows.items() if name in PRESETS}
    assert documented == PRESETS


def test_every_rule_for_models_is_documented() -> None:
    for field in dataclasses.fields(ModelRules):
        assert f"| `{field.name}` |" in GATEWAY


def test_every_key_of_the_key_file_is_documented() -> None:
    for name in KeyEntry.model_fields:
        assert re.search(rf"^\| .*`{name}`", MODELS, flags=re.MULTILINE), name
    for scheme in Scheme:
        assert f"`{scheme.value}`" in MODELS


def test_every_provider_is_documented_and_its_variable_is_heard() -> None:
    for provider in PROVIDERS:
        assert f"`{provider.name}`" in MODELS
        for variable in provider.key_variables:
            assert [key.provider for key in keys_in({variable: "a-key"})] == [provider.name]
