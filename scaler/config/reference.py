"""The configuration's reference in Markdown, made from the model: `python -m scaler.config.reference`.

It knows how a table looks and nothing about any key: what a key means is its docstring in the model, what it may
be comes from the JSON Schema.
"""

from __future__ import annotations

import sys
from typing import Any

import yaml
from pydantic import BaseModel

from .schema import MINIMAL, defaults_of, is_section, json_schema, sections
from .words import sections_in

_HEAD = """\
# Configuration

<!-- Made by `python -m scaler.config.reference`. Change the docstrings in scaler/config, not this file. -->

One YAML file, given to `tidegate run -c FILE`. This is enough to begin with; without a `gateway` one
replica is kept:

<!-- warned of: TG001 -->
```yaml
{minimal}```

`tidegate check FILE` says everything that is wrong with a file at once, with line and column; `tidegate schema`
prints its JSON Schema. At start a wrong file is refused; on reload the old configuration stays in force.

Durations are written `500ms`, `5s`, `2m`, `1h30m`, or as a number of seconds. Sizes are written `512KiB`, `8MiB`, or
as a number of bytes. Ratios are from 0 to 1. Only `true` and `false` are booleans. An unknown key is an error.
Anchors, aliases, merge keys and tags are not supported. Files named in the configuration are relative to the
directory that Tidegate runs in, and are read again when they are used.
"""


def reference() -> str:
    schema = json_schema()
    parts = [_HEAD.format(minimal=yaml.safe_dump(MINIMAL, sort_keys=False))]
    for section in sections():
        own = schema if section is sections()[0] else schema["$defs"][section.__name__]
        parts.append(_section(section, own))
    return "\n".join(parts)


def _section(section: type[BaseModel], schema: dict[str, Any]) -> str:
    title = "The file" if "$defs" in schema else section.__name__
    lines = [f"## {title}", "", " ".join(schema["description"].split()), ""]
    lines += ["| key | is | default | what it does |", "|---|---|---|---|"]
    defaults = defaults_of(section)
    for key, field in section.model_fields.items():
        own = schema["properties"][key]
        default = "see there" if is_section(field) else written(defaults[key]) if key in defaults else "**required**"
        kind = kind_of(own, next(sections_in(field.annotation), None))
        lines.append(f"| `{key}` | {kind} | {default} | {own['description'].replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"


def kind_of(schema: dict[str, Any], section: type[BaseModel] | None) -> str:
    """What a value may be, in a few words."""
    if section is not None:
        link = f"[{section.__name__}](#{section.__name__.lower()})"
        return f"list of {link}" if schema.get("type") == "array" else link
    options = [one for one in schema.get("anyOf", [schema]) if one.get("type") != "null"]
    if "title" not in schema and len(options) == 1:
        schema = options[0]
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {kind_of(schema['items'], None)}"
    words = {"string": "text", "boolean": "`true`, `false`", "integer": "whole number", "number": "number"}
    return (schema.get("title") or words[schema["type"]]) + _bounds(schema)


def _bounds(schema: dict[str, Any]) -> str:
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    return "".join(f", {sign} {schema[word]:g}" for word, sign in signs.items() if word in schema)


def written(value: Any) -> str:
    """A value as a file would have it."""
    return "`" + yaml.safe_dump(value, default_flow_style=True).removesuffix("\n...\n").strip() + "`"


if __name__ == "__main__":
    sys.stdout.write(reference())
