"""Renders the JSON Schema of the configuration (draft 2020-12), for editors and for the chart.

It accepts everything that the model accepts. A schema cannot express checks between values: `tidegate check` does them.
Descriptions, bounds and defaults come from the model.

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

# The smallest useful configuration.
MINIMAL: dict[str, Any] = {
    "workloads": [{"namespace": "ai", "name": "chat", "engine": "vllm", "pods": {"dns": "chat.ai.svc"}}]
}


class _Untitled(GenerateJsonSchema):
    """Omits the titles that pydantic makes of keys."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> dict[str, Any]:
        return self.generate_inner(schema["schema"])  # `json_schema` adds it, in the notation of the file


def json_schema() -> dict[str, Any]:
    schema = schema_of(Config)
    parts = schema["$defs"] | {Config.__name__: schema}
    for section in sections():
        defaults = defaults_of(section)
        for key, value in defaults.items():
            parts[section.__name__]["properties"][key]["default"] = value
        for key, field in section.model_fields.items():
            # On one line; pydantic keeps line breaks, and omits a description equal to the section's.
            parts[section.__name__]["properties"][key]["description"] = " ".join((field.description or "").split())
    head = {"$schema": GenerateJsonSchema.schema_dialect, "title": "Tidegate configuration", "examples": [MINIMAL]}
    return head | {key: value for key, value in schema.items() if key != "title"}


def schema_of(section: type[BaseModel]) -> dict[str, Any]:
    """The JSON Schema of a section, without defaults."""
    return section.model_json_schema(schema_generator=_Untitled)


def sections() -> list[type[BaseModel]]:
    """Every section of the model once, in the order of a file."""
    found: list[type[BaseModel]] = []
    waiting: list[type[BaseModel]] = [Config]
    while waiting:
        section = waiting.pop(0)
        if section not in found:
            found.append(section)
            inner = [each for field in section.model_fields.values() for each in sections_in(field.annotation)]
            waiting = inner + waiting
    return found


def defaults_of(section: type[BaseModel]) -> dict[str, Any]:
    """Each optional key and its default, in the notation of a file."""
    optional = [key for key, field in section.model_fields.items() if not field.is_required()]
    written = section.model_construct().model_dump(mode="json", include=set(optional), warnings=False)
    return {key: written[key] for key in optional}


def is_section(field: FieldInfo) -> bool:
    """Whether the default of the field is the default of a section."""
    return isinstance(field.default, BaseModel)
