"""Checks the JSON Schema: it describes every key, and accepts whatever the model accepts."""

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
    """Whether `schema` accepts `value`, for the part of JSON Schema that ours uses."""
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
        if isinstance(schema.get("additionalProperties"), dict):
            return all(_accepts(schema["additionalProperties"], item) for item in value.values())
        properties = schema["properties"]
        return set(schema.get("required", ())) <= set(value) <= set(properties) and all(
            _accepts(properties[key], item) for key, item in value.items()
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


def test_every_object_refuses_unknown_keys_and_describes_every_key():
    for part in _objects(_SCHEMA):
        assert part["additionalProperties"] is False
        assert part["description"]
        for key, field in part["properties"].items():
            assert field["description"].endswith("."), key
            assert "\n" not in field["description"]


def test_schema_has_its_dialect_title_and_example():
    assert _SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert _SCHEMA["title"] == "Tidegate configuration"
    assert _SCHEMA["examples"] == [MINIMAL]


@pytest.mark.parametrize("name", ["minimal.yaml", "full.yaml"])
def test_schema_accepts_what_the_model_accepts(name):
    document = yaml.safe_load((_HERE / name).read_text())

    assert _accepts(_SCHEMA, document)


def test_schema_accepts_the_written_defaults():
    for part in _objects(_SCHEMA):
        for key, field in part["properties"].items():
            assert "default" not in field or _accepts(field, field["default"]), key
            assert all(_accepts(field, value) for value in field.get("examples", ())), key


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
def test_schema_refuses_what_the_model_refuses(way, value):
    document = yaml.safe_load((_HERE / "full.yaml").read_text())
    holder = document
    for part in way[:-1]:
        holder = holder[part]
    holder[way[-1]] = copy.copy(value)

    assert not _accepts(_SCHEMA, document)


def test_documented_example_is_the_minimal_file(minimal):
    assert yaml.safe_load(minimal.read_text()) == MINIMAL
    assert parse(yaml.safe_dump(MINIMAL), "c.yaml")[0].workloads[0].name == "chat"
