"""The JSON Schema of the configuration, for editors and charts.

It accepts whatever the model accepts; what must hold between values, a schema cannot say, and `tidegate check` does.
Draft 2020-12. Descriptions, bounds and defaults are the model's own.

Worked example: `json_schema()["$defs"]["Scrape"]["properties"]["interval"]["default"]` is "5s".
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from .model import Config
from .pydantic_errors import sections_in

# The smallest configuration that decides something.
MINIMAL: dict[str, Any] = {
    "workloads": [{"namespace": "ai", "name": "chat", "engine": "vllm", "pods": {"dns": "chat.ai.svc"}}]
}


class _Untitled(GenerateJsonSchema):
    """Without a title made of each key, which says the key twice."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> dict[str, Any]:
        return self.generate_inner(schema["schema"])  # written by `json_schema`, in the words of the file


def json_schema() -> dict[str, Any]:
    schema = schema_of(Config)
    parts = schema["$defs"] | {Config.__name__: schema}
    for section in sections():
        defaults = defaults_of(section)
        for key, value in defaults.items():
            parts[section.__name__]["properties"][key]["default"] = value
        for key, field in section.model_fields.items():
            # On one line: pydantic keeps the breaks of the source, and drops what repeats a section's own words.
            parts[section.__name__]["properties"][key]["description"] = " ".join((field.description or "").split())
    head = {"$schema": GenerateJsonSchema.schema_dialect, "title": "Tidegate configuration", "examples": [MINIMAL]}
    return head | {key: value for key, value in schema.items() if key != "title"}


def schema_of(section: type[BaseModel]) -> dict[str, Any]:
    """Its plain JSON Schema, without defaults."""
    return section.model_json_schema(schema_generator=_Untitled)


def sections() -> list[type[BaseModel]]:
    """Every part of the model, in the order of a file, each once."""
    found: list[type[BaseModel]] = []
    waiting: list[type[BaseModel]] = [Config]
    while waiting:
        section = waiting.pop(0)
        if section not in found:
            found.append(section)
            inner = [one for field in section.model_fields.values() for one in sections_in(field.annotation)]
            waiting = inner + waiting
    return found


def defaults_of(section: type[BaseModel]) -> dict[str, Any]:
    """Each optional key and its default, as a file would write it."""
    optional = [key for key, field in section.model_fields.items() if not field.is_required()]
    written = section.model_construct().model_dump(mode="json", include=set(optional), warnings=False)
    return {key: written[key] for key in optional}


def is_section(field: FieldInfo) -> bool:
    """The field's default is a part of the model, so that it is the defaults of that part."""
    return isinstance(field.default, BaseModel)
