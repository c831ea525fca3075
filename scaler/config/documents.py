"""Kubernetes' YAML -> documents whose every value knows its place.

Unlike a configuration, a manifest may have many documents, anchors, merge keys and whatever else Kubernetes reads; they
are taken as they are. It knows YAML and no manifest.

Worked example: of `spec: {min: 0}` the entry `min` below `spec` is a value `0` at line 1, column 13, and no string.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import yaml

from .tree import TextPosition, YamlError, no_yaml, resolve

_STRING = "tag:yaml.org,2002:str"
_TIMESTAMP = "tag:yaml.org,2002:timestamp"  # text to Kubernetes, as is a base-60 number
_MERGE = "tag:yaml.org,2002:merge"


@dataclass(frozen=True, slots=True)
class DocumentValue:
    """One value of a document; `key` is where its key stands, or its own place in a list."""

    node: yaml.Node
    key: TextPosition

    @property
    def mark(self) -> TextPosition:
        return _mark(self.node)

    @property
    def text(self) -> str | None:
        """What stands there; None for a mapping or a list."""
        return str(self.node.value) if isinstance(self.node, yaml.ScalarNode) else None

    @property
    def is_string(self) -> bool:
        """Kubernetes takes it for a string."""
        if not isinstance(self.node, yaml.ScalarNode):
            return False
        if self.node.style is not None or ":" in self.node.value:
            return True
        return self.node.tag in {_STRING, _TIMESTAMP} and isinstance(resolve(self.node.value), str)

    def entries(self) -> dict[str, DocumentValue]:
        """A mapping's values by key; none for what is no mapping."""
        if not isinstance(self.node, yaml.MappingNode):
            return {}
        merged = [one for key, value in self.node.value if key.tag == _MERGE for one in _mappings(value)]
        # What stands first wins: its own keys, then the first mapping that is merged in.
        return {key: value for node in reversed([self.node, *merged]) for key, value in _own(node)}

    def at(self, *path: str | int) -> DocumentValue | None:
        """The value at a path; None where there is none."""
        found: DocumentValue | None = self
        for part in path:
            if found is None:
                return None
            if isinstance(part, int):
                items = found.items()
                found = items[part] if part < len(items) else None
            else:
                found = found.entry(part)
        return found

    def entry(self, key: str) -> DocumentValue | None:
        """`entries().get(key)`, without building the others: an object has hundreds, and is asked a hundred times."""
        if not isinstance(self.node, yaml.MappingNode):
            return None
        merges = False
        for one, value in reversed(self.node.value):  # of a repeated key the last one holds
            merges = merges or one.tag == _MERGE
            if isinstance(one, yaml.ScalarNode) and one.value == key and one.tag != _MERGE:
                return DocumentValue(value, _mark(one))
        return self.entries().get(key) if merges else None

    def read(self, *path: str) -> str:
        """The text at a path; "" where there is none."""
        found = self.at(*path)
        return (found.text if found is not None else None) or ""

    def count(self, *path: str) -> int | None:
        """The whole number at a path, if there is one."""
        found = self.at(*path)
        value = resolve(found.text) if found is not None and found.text and not found.is_string else None
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def below(self, *path: str) -> dict[str, DocumentValue]:
        """The entries of the mapping at a path; none where there is none."""
        found = self.at(*path)
        return {} if found is None else found.entries()

    def items(self, *path: str) -> list[DocumentValue]:
        """The values of the list at a path; none where there is none."""
        found = self.at(*path)
        if found is None or not isinstance(found.node, yaml.SequenceNode):
            return []
        return [DocumentValue(one, _mark(one)) for one in found.node.value]

    def repeated(self) -> set[str]:
        """Keys that a mapping gives more than once."""
        keys = [key for key, _ in _own(self.node)] if isinstance(self.node, yaml.MappingNode) else []
        return {key for key in keys if keys.count(key) > 1}


def documents(text: str) -> tuple[list[DocumentValue], list[YamlError]]:
    """Every document up to the first that is no YAML, and why that is none."""
    found: list[DocumentValue] = []
    try:
        loader = yaml.SafeLoader(text)
        while loader.check_node():
            if (node := loader.get_node()) is not None:
                found.append(DocumentValue(node, _mark(node)))
    except (yaml.MarkedYAMLError, yaml.reader.ReaderError) as error:
        return found, [no_yaml(error, text)]
    except RecursionError:
        return found, [YamlError((), TextPosition(1, 1), "is nested too deep")]
    return found, []


def _own(node: yaml.MappingNode) -> Iterator[tuple[str, DocumentValue]]:
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
            yield key.value, DocumentValue(value, _mark(key))


def _mappings(node: yaml.Node) -> list[yaml.MappingNode]:
    nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
    return [one for one in nodes if isinstance(one, yaml.MappingNode)]


def _mark(node: yaml.Node) -> TextPosition:
    return TextPosition(node.start_mark.line + 1, node.start_mark.column + 1)
