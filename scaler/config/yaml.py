"""Parses YAML so that every value has its line and column.

`compose` reads configurations: one document of mappings, lists and scalars. It rejects, with a position, what
configurations do not need: anchors, aliases and merge keys (no alias bomb can be built), tags, duplicate keys, a second
document, and nesting deeper than any configuration. `documents` reads Kubernetes manifests, where all of these are
allowed.

Unquoted scalars follow the core schema of YAML 1.2: only `true` and `false` are booleans, so `on` and `yes` are text;
`010` is not octal and `1:30` is not base 60: both stay text, which the field then validates.

Worked example: `compose("tick: 1s")` gives a mapping with `tick` as `YamlNode("1s", TextPosition(1, 7), "1s")`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import yaml

from .errors import Loc

# The deepest key of a configuration (workloads.0.pods.access.tls.ca_file) is 7 deep; this only bounds the recursion.
_MAX_DEPTH = 20
_SHOWN_CHARACTERS = 60

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")  # 18 digits: longer ones are no count of anything
_FLOAT = re.compile(r"[-+]?(0|[1-9][0-9]*)?(\.[0-9]*)?([eE][-+]?[0-9]{1,3})?")
_CONSTANTS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_STRING_TAG = "tag:yaml.org,2002:str"
_TIMESTAMP_TAG = "tag:yaml.org,2002:timestamp"  # Kubernetes reads a timestamp as text, and a base-60 number too
_MERGE_TAG = "tag:yaml.org,2002:merge"

Scalar: TypeAlias = str | int | float | bool | None


class TextPosition(NamedTuple):
    """A position in the text, counted from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class YamlNode:
    """One value of a configuration. text: how error messages show it. keys: positions of a mapping's keys."""

    value: Scalar | list[YamlNode] | dict[str, YamlNode]
    mark: TextPosition
    text: str
    keys: dict[str, TextPosition] = field(default_factory=dict)


class YamlError(NamedTuple):
    """Rejected text. spoils: the value at this key is lost, with everything below it."""

    loc: Loc
    mark: TextPosition
    message: str
    spoils: Loc | None = None


class _TooDeep(Exception):  # noqa: N818  never leaves this module
    """args[0]: the position."""


def compose(text: str) -> tuple[YamlNode | None, list[YamlError]]:
    """The tree of a configuration, or None if there is none, and everything that was rejected."""
    errors: list[YamlError] = []
    try:
        return _document(yaml.parse(text, Loader=yaml.SafeLoader), errors), errors
    except _TooDeep as error:
        errors.append(YamlError((), error.args[0], f"must be nested at most {_MAX_DEPTH} deep"))
    except (yaml.MarkedYAMLError, yaml.reader.ReaderError) as error:
        errors.append(_syntax_error(error, text))
    return None, errors


def plain(node: YamlNode) -> Any:
    """The values alone, in new lists and dictionaries."""
    if isinstance(node.value, dict):
        return {key: plain(child) for key, child in node.value.items()}
    if isinstance(node.value, list):
        return [plain(child) for child in node.value]
    return node.value


def find(root: YamlNode, loc: Loc) -> YamlNode | None:
    """The value at `loc`; None if the text does not give it."""
    node = root
    for part in loc:
        if isinstance(node.value, dict) and part in node.value:
            node = node.value[str(part)]
        elif isinstance(node.value, list) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
        else:
            return None
    return node


def position_of(root: YamlNode, loc: Loc) -> TextPosition:
    """The position of the value at `loc`, else of the nearest mapping or list around it."""
    nodes = (find(root, loc[:length]) for length in range(len(loc), -1, -1))
    return next(node for node in nodes if node is not None).mark


def resolve(value: str) -> Scalar:
    """The value of an unquoted text."""
    if value in _CONSTANTS:
        return _CONSTANTS[value]
    if _INTEGER.fullmatch(value):
        return int(value)
    if _FLOAT.fullmatch(value) and any(letter.isdigit() for letter in value.lower().split("e")[0]):
        return float(value)
    return value


@dataclass(frozen=True, slots=True)
class DocumentValue:
    """One value of a Kubernetes document. key: position of its key, or its own position in a list.

    Worked example: in `spec: {min: 0}`, `at("spec", "min")` is 0 at line 1, column 13, and is no string.
    """

    node: yaml.Node
    key: TextPosition

    @property
    def mark(self) -> TextPosition:
        return _mark(self.node)

    @property
    def text(self) -> str | None:
        """The text of a scalar; None for a mapping or a list."""
        return str(self.node.value) if isinstance(self.node, yaml.ScalarNode) else None

    @property
    def is_string(self) -> bool:
        """Whether Kubernetes reads it as a string."""
        if not isinstance(self.node, yaml.ScalarNode):
            return False
        if self.node.style is not None or ":" in self.node.value:
            return True
        return self.node.tag in {_STRING_TAG, _TIMESTAMP_TAG} and isinstance(resolve(self.node.value), str)

    def entries(self) -> dict[str, DocumentValue]:
        """A mapping's values by key; empty for everything else."""
        if not isinstance(self.node, yaml.MappingNode):
            return {}
        merged = [each for key, value in self.node.value if key.tag == _MERGE_TAG for each in _mappings(value)]
        # Precedence: the mapping's own keys, then the first mapping that is merged in.
        return {key: value for node in reversed([self.node, *merged]) for key, value in _direct_entries(node)}

    def at(self, *path: str | int) -> DocumentValue | None:
        """The value at a path; None if there is none."""
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
        """`entries().get(key)` without building the dictionary: a run looks up hundreds of keys of each object."""
        if not isinstance(self.node, yaml.MappingNode):
            return None
        merges = False
        for each, value in reversed(self.node.value):  # the last one of a repeated key counts
            merges = merges or each.tag == _MERGE_TAG
            if isinstance(each, yaml.ScalarNode) and each.value == key and each.tag != _MERGE_TAG:
                return DocumentValue(value, _mark(each))
        return self.entries().get(key) if merges else None

    def read(self, *path: str) -> str:
        """The text at a path; "" if there is none."""
        found = self.at(*path)
        return (found.text if found is not None else None) or ""

    def count(self, *path: str) -> int | None:
        """The integer at a path; None if there is none."""
        found = self.at(*path)
        value = resolve(found.text) if found is not None and found.text and not found.is_string else None
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def below(self, *path: str) -> dict[str, DocumentValue]:
        """The entries of the mapping at a path; empty if there is none."""
        found = self.at(*path)
        return {} if found is None else found.entries()

    def items(self, *path: str) -> list[DocumentValue]:
        """The values of the list at a path; empty if there is none."""
        found = self.at(*path)
        if found is None or not isinstance(found.node, yaml.SequenceNode):
            return []
        return [DocumentValue(each, _mark(each)) for each in found.node.value]

    def repeated(self) -> set[str]:
        """Keys that a mapping gives more than once."""
        keys = [key for key, _ in _direct_entries(self.node)] if isinstance(self.node, yaml.MappingNode) else []
        return {key for key in keys if keys.count(key) > 1}


def documents(text: str) -> tuple[list[DocumentValue], list[YamlError]]:
    """Every document before the first syntax error, and that error."""
    found: list[DocumentValue] = []
    try:
        loader = yaml.SafeLoader(text)
        while loader.check_node():
            if (node := loader.get_node()) is not None:
                found.append(DocumentValue(node, _mark(node)))
    except (yaml.MarkedYAMLError, yaml.reader.ReaderError) as error:
        return found, [_syntax_error(error, text)]
    except RecursionError:
        return found, [YamlError((), TextPosition(1, 1), "is nested too deep")]
    return found, []


def _direct_entries(node: yaml.MappingNode) -> Iterator[tuple[str, DocumentValue]]:
    """The entries without those of merged mappings."""
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE_TAG:
            yield key.value, DocumentValue(value, _mark(key))


def _mappings(node: yaml.Node) -> list[yaml.MappingNode]:
    nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
    return [each for each in nodes if isinstance(each, yaml.MappingNode)]


def _document(events: Iterator[Any], errors: list[YamlError]) -> YamlNode | None:
    next(events)  # StreamStart
    if isinstance(next(events), yaml.StreamEndEvent):
        return None
    root = _node(next(events), events, (), errors)
    next(events)  # DocumentEnd
    after = next(events)
    if isinstance(after, yaml.DocumentStartEvent):
        errors.append(YamlError((), _mark(after), "must be one YAML document: a second one begins here"))
    return root


def _node(event: Any, events: Iterator[Any], loc: Loc, errors: list[YamlError]) -> YamlNode:
    mark = _mark(event)
    if len(loc) > _MAX_DEPTH:
        raise _TooDeep(mark)
    if isinstance(event, yaml.AliasEvent):
        errors.append(YamlError(loc, mark, f"aliases (*{event.anchor}) are not supported: write the value out", loc))
        return YamlNode(None, mark, "an alias")
    if event.anchor is not None:
        errors.append(YamlError(loc, mark, f"anchors (&{event.anchor}) are not supported: write each value out"))
    if event.tag is not None:
        tag = event.tag.replace("tag:yaml.org,2002:", "!!")
        message = f"tags ({tag}) are not supported: write the plain value, in quotes if text"
        errors.append(YamlError(loc, mark, message, loc))
    if isinstance(event, yaml.ScalarEvent):
        return _scalar(event, mark)
    if isinstance(event, yaml.SequenceStartEvent):
        return _sequence(mark, events, loc, errors)
    return _mapping(mark, events, loc, errors)


def _sequence(mark: TextPosition, events: Iterator[Any], loc: Loc, errors: list[YamlError]) -> YamlNode:
    children: list[YamlNode] = []
    while not isinstance(event := next(events), yaml.SequenceEndEvent):
        children.append(_node(event, events, (*loc, len(children)), errors))
    return YamlNode(children, mark, "a list")


def _mapping(mark: TextPosition, events: Iterator[Any], loc: Loc, errors: list[YamlError]) -> YamlNode:
    children: dict[str, YamlNode] = {}
    keys: dict[str, TextPosition] = {}
    while not isinstance(event := next(events), yaml.MappingEndEvent):
        key = event.value if isinstance(event, yaml.ScalarEvent) else None
        at = loc if key is None else (*loc, key)
        rejection = _rejection(key, keys)
        # The value of a rejected key is read to get past it; its errors go away with the key.
        inner_errors: list[YamlError] = [] if rejection else errors
        _node(event, events, (*loc, key or "?"), inner_errors)
        child = _node(next(events), events, (*loc, key or "?"), inner_errors)
        if key is None or rejection:
            errors.append(YamlError(at, _mark(event), rejection or "", loc if key == "<<" else None))
        else:
            children[key], keys[key] = child, _mark(event)
    return YamlNode(children, mark, "a mapping", keys)


def _rejection(key: str | None, keys: dict[str, TextPosition]) -> str | None:
    """Why a mapping that has `keys` cannot have `key` too."""
    if key is None:
        return "a key must be a plain word"
    if key == "<<":
        return "merge keys (<<) are not supported: write the values out"
    return f"duplicate key: already given on line {keys[key].line}" if key in keys else None


def _scalar(event: Any, mark: TextPosition) -> YamlNode:
    value: str = event.value
    if event.style is not None:  # quoted, or a block: always text
        return YamlNode(value, mark, f'"{_shown(value)}"')
    return YamlNode(resolve(value), mark, _shown(value) if value else "nothing")


def _shown(value: str) -> str:
    """At most 60 characters of a value, on one line, without the user and password of a URL."""
    value = re.sub(r"\S+", _without_user, value[:2000])
    value = value if len(value) <= _SHOWN_CHARACTERS else value[: _SHOWN_CHARACTERS - 3] + "..."
    return "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in value)


def _without_user(run: re.Match[str]) -> str:
    """Text without blanks, less everything between the first :// and the last @."""
    text = run[0]
    start, end = text.find("://"), text.rfind("@")
    return f"{text[:start]}://...{text[end:]}" if 0 <= start < end else text


def _syntax_error(error: yaml.MarkedYAMLError | yaml.reader.ReaderError, text: str) -> YamlError:
    if isinstance(error, yaml.reader.ReaderError):
        before = text[: error.position]
        mark = TextPosition(before.count("\n") + 1, error.position - before.rfind("\n"))
        return YamlError((), mark, f"must be printable text, got U+{error.character:04X}")
    at = error.problem_mark or error.context_mark
    mark = TextPosition(at.line + 1, at.column + 1) if at else TextPosition(1, 1)
    if "'\\t'" in str(error.problem):
        return YamlError((), mark, "a tab cannot stand here: YAML is indented with spaces")
    context = f" {error.context}" if error.context else ""
    return YamlError((), mark, f"not valid YAML: {error.problem}{context}")


def _mark(event: Any) -> TextPosition:
    """The position of a parser event or a node."""
    return TextPosition(event.start_mark.line + 1, event.start_mark.column + 1)
