"""The JSON Schema: it describes everything, and takes whatever the model takes."""

import copy
import re
from pathlib import Path

import pytest
import yaml

from scaler.config import parse
from scaler.config.schema import MINIMAL, json_schema

_HERE = Path(__file__).parent
_SCHEMA = json_schema()
_TYPES = {
    "object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float),
    "null": type(None),
}  # fmt: skip


def _accepts(schema, value):
    """As much of JSON Schema as ours says."""
    if "$ref" in schema:
        schema = _SCHEMA["$defs"][schema["$ref"].rsplit("/", 1)[1]]
    if "anyOf" in schema:
        return any(_accepts(option, value) for option in schema["anyOf"])
    if "const" in schema and value != schema["const"]:
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if not isinstance(value, _TYPES[schema["type"]]) or (isinstance(value, bool) and schema["type"] != "boolean"):
        return False
    if isinstance(value, str):
        return bool(re.search(schema.get("pattern", ""), value)) and len(value) >= schema.get("minLength", 0)
    if isinstance(value, dict):
        known = schema["properties"]
        return set(schema.get("required", ())) <= set(value) <= set(known) and all(
            _accepts(known[key], item) for key, item in value.items()
        )
    if isinstance(value, list):
        return len(value) >= schema.get("minItems", 0) and all(_accepts(schema["items"], item) for item in value)
    if isinstance(value, bool) or value is None:
        return True
    return (
        schema.get("minimum", value) <= value <= schema.get("maximum", value)
        and not value <= schema.get("exclusiveMinimum", value - 1)
        and not value >= schema.get("exclusiveMaximum", value + 1)
    )


def _objects(schema):
    return [_SCHEMA, *schema["$defs"].values()]


def test_every_part_refuses_unknown_keys_and_describes_every_key():
    for part in _objects(_SCHEMA):
        assert part["additionalProperties"] is False
        assert part["description"]
        for key, known in part["properties"].items():
            assert known["description"].endswith("."), key
            assert "\n" not in known["description"]


def test_it_says_which_schema_it_is_and_gives_an_example():
    assert _SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert _SCHEMA["title"] == "Tidegate configuration"
    assert _SCHEMA["examples"] == [MINIMAL]


@pytest.mark.parametrize("name", ["minimal.yaml", "full.yaml"])
def test_it_takes_what_the_model_takes(name):
    document = yaml.safe_load((_HERE / name).read_text())

    assert _accepts(_SCHEMA, document)


def test_it_takes_the_defaults_as_they_are_written():
    for part in _objects(_SCHEMA):
        for key, known in part["properties"].items():
            assert "default" not in known or _accepts(known, known["default"]), key
            assert all(_accepts(known, value) for value in known.get("examples", ())), key


@pytest.mark.parametrize(
    ("way", "value"),
    [
        (("tick",), "1:30"),
        (("tick",), True),
        (("tick",), 61),
        (("log", "level"), "loud"),
        (("scrape", "body_limit"), "8Mb"),
        (("workloads", 0, "engine"), "dcgm"),
        (("workloads", 0, "name"), "Chat"),
        (("workloads", 0, "objectives", "work"), 0),
        (("workloads", 0, "gpu_quiet"), 1),
        (("gpus", 0, "port"), 0),
        (("gpus", 0, "prot"), 9400),
    ],
)
def test_it_refuses_what_the_model_refuses(way, value):
    document = yaml.safe_load((_HERE / "full.yaml").read_text())
    holder = document
    for part in way[:-1]:
        holder = holder[part]
    holder[way[-1]] = copy.copy(value)

    assert not _accepts(_SCHEMA, document)


def test_the_documented_example_is_the_minimal_file(minimal):
    assert yaml.safe_load(minimal.read_text()) == MINIMAL
    assert parse(yaml.safe_dump(MINIMAL), "c.yaml")[0].workloads[0].name == "chat"
