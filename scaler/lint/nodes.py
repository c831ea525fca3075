"""JSON as the Kubernetes API answers it -> the same values that manifests are read into. Pure.

There are no lines to go to: every place is the same, and whoever shows a problem leaves it out.

Worked example: of `{"spec": {"replicas": 2}}` the value at `spec.replicas` has the text "2" and is no string.
"""

from __future__ import annotations

from typing import Any

import yaml

from ..config.documents import Value
from ..config.tree import Mark

_NOWHERE = yaml.Mark("", 0, 0, 0, None, 0)
_TAG = "tag:yaml.org,2002:"
_PLACE = Mark(1, 1)


def value_of(document: dict[str, Any]) -> Value:
    return Value(_node(document), _PLACE)


def _node(said: Any) -> yaml.Node:
    if isinstance(said, dict):
        pairs = [(_scalar("str", str(key)), _node(one)) for key, one in said.items()]
        return yaml.MappingNode(f"{_TAG}map", pairs, _NOWHERE, _NOWHERE)
    if isinstance(said, list):
        return yaml.SequenceNode(f"{_TAG}seq", [_node(one) for one in said], _NOWHERE, _NOWHERE)
    match said:
        case str():
            return yaml.ScalarNode(f"{_TAG}str", said, _NOWHERE, _NOWHERE, style='"')
        case bool():
            return _scalar("bool", "true" if said else "false")
        case None:
            return _scalar("null", "null")
        case int():
            return _scalar("int", str(said))
    return _scalar("float", str(said))


def _scalar(tag: str, text: str) -> yaml.Node:
    return yaml.ScalarNode(_TAG + tag, text, _NOWHERE, _NOWHERE)
