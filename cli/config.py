"""The configuration file: YAML -> RunConfig; every complaint names the file, the line and the key."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from cli.errors import Misuse
from cli.text import clean, shown_size
from massgend.api.schemas import KINDS, RunConfig

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 20
MAX_NODES = 20_000
MAX_SHOWN = 3

Location = tuple[str | int, ...]


def load_config(path: Path) -> RunConfig:
    """Raises Misuse, with at most three complaints, for a file that cannot be read or says what we do not know."""
    return parse_config(_read(path), name=str(path))


def parse_config(text: str, *, name: str) -> RunConfig:
    root = _compose(text, name)
    if not isinstance(root, yaml.MappingNode):
        raise Misuse(f"{name}:{_line(root)}: the configuration must be keys and values, for example 'task: ...'")
    values = _Reader(name).value(root, ())
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        raise Misuse(_complaints(error, root, name)) from None


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise Misuse(f"{path}: there is no such configuration file: name another with --config") from None
    except OSError as error:
        raise Misuse(f"{path}: the configuration cannot be read: {error.strerror}") from None
    if len(raw) > MAX_BYTES:
        raise Misuse(f"{path}: larger than 1 MiB, so it is hardly a configuration: name another with --config")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise Misuse(f"{path}:{line}: not UTF-8 text: save the configuration as UTF-8") from None
    if "\0" in text:
        raise Misuse(f"{path}: a binary file, not a configuration: name another with --config")
    return text


def _compose(text: str, name: str) -> yaml.Node:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        raise Misuse(_malformed(error, name)) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise Misuse(f"{name}:{line}: a character that YAML does not allow: {chr(error.character)!a}") from None
    except RecursionError:
        raise Misuse(f"{name}: nested too deeply") from None
    if root is None:
        raise Misuse(f"{name}: the configuration is empty: it needs at least 'agents:'")
    return root


def _malformed(error: yaml.MarkedYAMLError, name: str) -> str:
    mark = error.problem_mark or error.context_mark
    where = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
    said = clean(f"{error.problem or 'it cannot be read'}").replace("'<stream end>'", "the end of the file")
    opened = error.context_mark
    began = f" (in what begins on line {opened.line + 1})" if opened and mark and opened.line != mark.line else ""
    hint = " (indent with spaces)" if "'\\t'" in said else ""
    return f"{where}: not valid YAML: {said}{hint}{began}"


class _Reader:
    """Node tree -> plain values, with duplicate keys refused and the size of the tree bounded."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._nodes = 0
        self._scalars = yaml.SafeLoader("")

    def value(self, node: yaml.Node, location: Location) -> Any:
        self._nodes += 1
        if self._nodes > MAX_NODES or len(location) > MAX_DEPTH:
            raise Misuse(f"{self._name}:{_line(node)}: too many values, or nested too deeply")
        match node:
            case yaml.MappingNode():
                return self._mapping(node, location)
            case yaml.SequenceNode():
                return [self.value(item, (*location, index)) for index, item in enumerate(node.value)]
            case _:
                try:
                    return self._scalars.construct_object(node)
                except (yaml.YAMLError, ValueError):
                    shown = _shown(location)
                    raise Misuse(f"{self._name}:{_line(node)}: {shown}: the value cannot be read") from None

    def _mapping(self, node: yaml.MappingNode, location: Location) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise Misuse(f"{self._name}:{_line(key)}: {_shown(location)}: a key must be a word")
            if key.value in values:
                where = _shown((*location, key.value))
                raise Misuse(f"{self._name}:{_line(key)}: {where}: the key '{clean(key.value)}' stands there twice")
            values[key.value] = self.value(value, (*location, key.value))
        return values


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _shown(location: Location) -> str:
    shown = ""
    for part in location:
        shown += f"[{part}]" if isinstance(part, int) else f".{part}" if shown else part
    return clean(shown) or "the file"


def _complaints(error: ValidationError, root: yaml.Node, name: str) -> str:
    lines = []
    for fault in error.errors(include_url=False):
        # A fault in the key that tells the kinds apart is located at the mapping around it.
        tag = ("kind",) if fault["type"].startswith("union_tag") else ()
        location, line = _find(root, (*fault["loc"], *tag))
        lines.append((line, f"{name}:{line}: {_shown(location)}: {complaint(fault, location)}"))
    lines.sort(key=lambda one: one[0])
    shown = [text for _, text in lines[:MAX_SHOWN]]
    if len(lines) > MAX_SHOWN:
        shown.append(f"and {len(lines) - MAX_SHOWN} more")
    return "\n".join(shown)


def _find(root: yaml.Node, loc: Location) -> tuple[Location, int]:
    """The location without the tags that pydantic adds for unions, and the line of the key (or of its parent)."""
    node, line, found = root, 1, []
    for part in loc:
        if isinstance(node, yaml.MappingNode):
            pair = next(((key, value) for key, value in node.value if key.value == part), None)
            if pair is None and part in KINDS and part != loc[-1]:
                continue
            found.append(part)
            if pair is None:
                break
            node, line = pair[1], _line(pair[0])
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            found.append(part)
            node = node.value[part]
            line = _line(node)
    return tuple(found), line


def complaint(fault: Mapping[str, Any], location: Location) -> str:
    """One fault of pydantic's as a plain half-sentence."""
    given, limits = fault.get("input"), fault.get("ctx", {})
    last = str(location[-1]) if location else ""
    match fault["type"]:
        case "extra_forbidden":
            return _unknown_key(last, known_keys(location[:-1]))
        case "missing" | "union_tag_not_found":
            return f"missing: write '{last or 'kind'}: ...'"
        case "literal_error" | "union_tag_invalid" if last == "kind" or fault["type"] == "union_tag_invalid":
            wanted = given.get("kind") if isinstance(given, dict) else given
            return f"unknown kind '{_value(wanted)}'; kinds: {', '.join(KINDS)}"
        case "string_type":
            return "must be text: put it in quotes" if isinstance(given, int | float) else "must be text"
        case "enum" | "literal_error":
            return f"'{_value(given)}' is not possible; choose {limits.get('expected', '')}"
        case "value_error":
            return clean(str(limits.get("error", fault["msg"])))
        case "greater_than_equal":
            return f"must be at least {_number(limits['ge'])}, not {_value(given)}"
        case "greater_than":
            return f"must be more than {_number(limits['gt'])}, not {_value(given)}"
        case "less_than_equal":
            return f"must be at most {_number(limits['le'])}, not {_value(given)}"
        case "string_too_short":
            return "must not be empty"
        case "string_too_long" | "too_long":
            return f"too long (at most {limits['max_length']})"
        case "list_type":
            return "must be a list, each item beginning with '- '"
        case "model_type" | "model_attributes_type" | "dict_type":
            return "must be keys and values, for example {name: ada, ...}"
        case "int_type" | "int_parsing" | "int_from_float" | "float_type" | "float_parsing" | "finite_number":
            return f"must be a{' whole' if fault['type'].startswith('int') else ''} number, not '{_value(given)}'"
        case "bool_type" | "bool_parsing":
            return f"must be true or false, not '{_value(given)}'"
        case _:
            return clean(str(fault["msg"])).removeprefix("Value error, ")


def _value(given: object) -> str:
    shown = clean(str(given))
    return shown if len(shown) <= 40 else shown[:39] + "…"


def _number(limit: float) -> str:
    return shown_size(int(limit)) if limit >= 1024**2 else f"{limit:g}"


def _unknown_key(key: str, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(key, known, n=1)
    guess = f" (did you mean '{close[0]}'?)" if close else ""
    return f"unknown key '{_value(key)}'{guess}; known keys: {', '.join(known)}"


def known_keys(location: Location) -> tuple[str, ...]:
    """The keys that may stand in the mapping at `location`, from the schema."""
    schema = RunConfig.model_json_schema()
    here = [schema]
    for part in location:
        here = [
            below
            for one in here
            for below in _alternatives(
                one.get("items", {}) if isinstance(part, int) else one.get("properties", {}).get(part, {}), schema
            )
        ]
    return tuple(dict.fromkeys(key for one in here for key in one.get("properties", {})))


def _alternatives(one: dict[str, Any], schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "$ref" in one:
        yield from _alternatives(schema["$defs"][one["$ref"].rsplit("/", 1)[1]], schema)
    for choice in (*one.get("oneOf", ()), *one.get("anyOf", ())):
        yield from _alternatives(choice, schema)
    yield one


def schema_text() -> str:
    """The file's JSON schema, for editors, as docs/schema/run.schema.json holds it."""
    schema = RunConfig.model_json_schema()
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}, indent=2) + "\n"
