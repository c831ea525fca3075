"""YAML text -> a tree in which every value knows its line and column.

Reads the YAML that configurations are written in: one document of mappings, lists and scalars. It refuses, with a
place, what configurations are better without: anchors, aliases and merge keys (a value stands where it is used, and
no alias bomb can be built), tags, duplicate keys, a second document, nesting deeper than any configuration.

Scalars mean what they look like (YAML 1.2's core): only `true` and `false` are booleans, so `on` and `yes` are
words; `010` is no octal and `1:30` no base-60 number. All three stay text, for the field to judge by what it wants.

Worked example: `compose("tick: 1s")` gives a mapping node whose value `tick` is `Node("1s", Mark(1, 7), "1s")`.

Kubernetes' YAML -> documents whose every value knows its place.

Unlike a configuration, a manifest may have many documents, anchors, merge keys and whatever else Kubernetes reads; they
are taken as they are. It knows YAML and no manifest.

Worked example: of `spec: {min: 0}` the entry `min` below `spec` is a value `0` at line 1, column 13, and no string.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import yaml

from .errors import Loc

# The deepest configuration (workloads.0.pods.access.tls.ca_file) is 7 deep; this many only bounds the recursion.
_DEEPEST = 20

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")  # 18 digits: longer ones are no count of anything
_FLOAT = re.compile(r"[-+]?(0|[1-9][0-9]*)?(\.[0-9]*)?([eE][-+]?[0-9]{1,3})?")
_WORDS: dict[str, bool | None] = {"": None, "~": None}
_WORDS |= dict.fromkeys(("null", "Null", "NULL"))
_WORDS |= dict.fromkeys(("true", "True", "TRUE"), True)
_WORDS |= dict.fromkeys(("false", "False", "FALSE"), False)

Scalar: TypeAlias = str | int | float | bool | None


class TextPosition(NamedTuple):
    """A place in the text, counted from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class YamlNode:
    """One value. `text`: how to show it to the person who wrote it. `keys`: where a mapping's keys stand."""

    value: Scalar | list[YamlNode] | dict[str, YamlNode]
    mark: TextPosition
    text: str
    keys: dict[str, TextPosition] = field(default_factory=dict)


class YamlError(NamedTuple):
    """Something in the text that is no configuration. Of the values at and below `spoils` nothing more is known."""

    loc: Loc
    mark: TextPosition
    message: str
    spoils: Loc | None = None


class _Unreadable(Exception):  # noqa: N818  never leaves this module
    def __init__(self, trouble: YamlError) -> None:
        self.trouble = trouble


def compose(text: str) -> tuple[YamlNode | None, list[YamlError]]:
    """The tree, or None where there is none, and everything that was refused on the way."""
    troubles: list[YamlError] = []
    try:
        return _document(yaml.parse(text, Loader=yaml.SafeLoader), troubles), troubles
    except _Unreadable as error:
        troubles.append(error.trouble)
    except (yaml.MarkedYAMLError, yaml.reader.ReaderError) as error:
        troubles.append(no_yaml(error, text))
    return None, troubles


def plain(node: YamlNode) -> Any:
    """The values alone, in fresh lists and dictionaries."""
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


def place(root: YamlNode, loc: Loc) -> TextPosition:
    """Where to look: the value at `loc`, else the nearest mapping or list around the gap."""
    for length in range(len(loc), -1, -1):
        node = find(root, loc[:length])
        if node is not None:
            return node.mark
    return root.mark


def _document(events: Iterator[Any], troubles: list[YamlError]) -> YamlNode | None:
    next(events)  # StreamStart
    if isinstance(next(events), yaml.StreamEndEvent):
        return None
    root = _node(next(events), events, (), troubles)
    next(events)  # DocumentEnd
    after = next(events)
    if isinstance(after, yaml.DocumentStartEvent):
        troubles.append(YamlError((), _mark(after), "must be one YAML document: a second one begins here"))
    return root


def _node(event: Any, events: Iterator[Any], loc: Loc, troubles: list[YamlError]) -> YamlNode:
    mark = _mark(event)
    if len(loc) > _DEEPEST:
        raise _Unreadable(YamlError((), mark, f"must be nested at most {_DEEPEST} deep"))
    if isinstance(event, yaml.AliasEvent):
        troubles.append(YamlError(loc, mark, f"aliases (*{event.anchor}) are not supported: write the value out", loc))
        return YamlNode(None, mark, "an alias")
    if event.anchor is not None:
        troubles.append(YamlError(loc, mark, f"anchors (&{event.anchor}) are not supported: write each value out"))
    if event.tag is not None:
        tag = event.tag.replace("tag:yaml.org,2002:", "!!")
        sentence = f"tags ({tag}) are not supported: write the plain value, in quotes if text"
        troubles.append(YamlError(loc, mark, sentence, loc))
    if isinstance(event, yaml.ScalarEvent):
        return _scalar(event, mark)
    if isinstance(event, yaml.SequenceStartEvent):
        return _sequence(mark, events, loc, troubles)
    return _mapping(mark, events, loc, troubles)


def _sequence(mark: TextPosition, events: Iterator[Any], loc: Loc, troubles: list[YamlError]) -> YamlNode:
    children: list[YamlNode] = []
    while not isinstance(event := next(events), yaml.SequenceEndEvent):
        children.append(_node(event, events, (*loc, len(children)), troubles))
    return YamlNode(children, mark, "a list")


def _mapping(mark: TextPosition, events: Iterator[Any], loc: Loc, troubles: list[YamlError]) -> YamlNode:
    children: dict[str, YamlNode] = {}
    keys: dict[str, TextPosition] = {}
    while not isinstance(event := next(events), yaml.MappingEndEvent):
        key = event.value if isinstance(event, yaml.ScalarEvent) else None
        at = loc if key is None else (*loc, key)
        refusal = _refusal(key, keys)
        # What hangs on a refused key is read to get past it; what is wrong in there goes when the key goes.
        inside: list[YamlError] = [] if refusal else troubles
        _node(event, events, (*loc, key or "?"), inside)
        child = _node(next(events), events, (*loc, key or "?"), inside)
        if key is None or refusal:
            troubles.append(YamlError(at, _mark(event), refusal or "", loc if key == "<<" else None))
        else:
            children[key], keys[key] = child, _mark(event)
    return YamlNode(children, mark, "a mapping", keys)


def _refusal(key: str | None, seen: dict[str, TextPosition]) -> str | None:
    if key is None:
        return "a key must be a plain word"
    if key == "<<":
        return "merge keys (<<) are not supported: write the values out"
    if key in seen:
        return f"duplicate key: already given on line {seen[key].line}"
    return None


def _scalar(event: Any, mark: TextPosition) -> YamlNode:
    value: str = event.value
    if event.style is not None:  # quoted, or a block: text, whatever it looks like
        return YamlNode(value, mark, f'"{_shown(value)}"')
    return YamlNode(resolve(value), mark, _shown(value) if value else "nothing")


def resolve(value: str) -> Scalar:
    """What an unquoted text stands for."""
    if value in _WORDS:
        return _WORDS[value]
    if _INTEGER.fullmatch(value):
        return int(value)
    if _FLOAT.fullmatch(value) and any(letter.isdigit() for letter in value.lower().split("e")[0]):
        return float(value)
    return value


def _shown(value: str, most: int = 60) -> str:
    """At most `most` characters of a value, on one line, without the user and password of a URL."""
    value = re.sub(r"\S+", _without_user, value[:2000])
    value = value if len(value) <= most else value[: most - 3] + "..."
    return "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in value)


def _without_user(run: re.Match[str]) -> str:
    """A run without blanks, without what stands between the first :// and the last @."""
    text = run[0]
    start, end = text.find("://"), text.rfind("@")
    return f"{text[:start]}://...{text[end:]}" if 0 <= start < end else text


def no_yaml(error: yaml.MarkedYAMLError | yaml.reader.ReaderError, text: str) -> YamlError:
    """Where and why a text is no YAML."""
    if isinstance(error, yaml.reader.ReaderError):
        before = text[: error.position]
        place = TextPosition(before.count("\n") + 1, error.position - before.rfind("\n"))
        return YamlError((), place, f"must be printable text, got U+{error.character:04X}")
    mark = error.problem_mark or error.context_mark
    place = TextPosition(mark.line + 1, mark.column + 1) if mark else TextPosition(1, 1)
    if "'\\t'" in str(error.problem):
        return YamlError((), place, "a tab cannot stand here: YAML is indented with spaces")
    context = f" {error.context}" if error.context else ""
    return YamlError((), place, f"not valid YAML: {error.problem}{context}")


def _mark(event: Any) -> TextPosition:
    return TextPosition(event.start_mark.line + 1, event.start_mark.column + 1)


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
        return _mark_of_node(self.node)

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
                return DocumentValue(value, _mark_of_node(one))
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
        return [DocumentValue(one, _mark_of_node(one)) for one in found.node.value]

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
                found.append(DocumentValue(node, _mark_of_node(node)))
    except (yaml.MarkedYAMLError, yaml.reader.ReaderError) as error:
        return found, [no_yaml(error, text)]
    except RecursionError:
        return found, [YamlError((), TextPosition(1, 1), "is nested too deep")]
    return found, []


def _own(node: yaml.MappingNode) -> Iterator[tuple[str, DocumentValue]]:
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
            yield key.value, DocumentValue(value, _mark_of_node(key))


def _mappings(node: yaml.Node) -> list[yaml.MappingNode]:
    nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
    return [one for one in nodes if isinstance(one, yaml.MappingNode)]


def _mark_of_node(node: yaml.Node) -> TextPosition:
    return TextPosition(node.start_mark.line + 1, node.start_mark.column + 1)
