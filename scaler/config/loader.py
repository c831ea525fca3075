"""A file -> a configuration, or everything that is wrong with it at once, each with file, line and column.

`parse` is pure; `load` and `check` read the file first. An error that a person can make is a `Problem`, never a
traceback; what the text says by mistake is looked for in three places: the YAML itself (`tree`), single values (the
model) and values against each other (`checks`).

Worked example: with `smoothing: {up: 2s}` in line 14, `check` has one problem, and it reads
`config.yaml:14:20: workloads.0.smoothing.up: must be 0 or at least the scrape interval (5s), got 2s`.

Whether a file is another than it was.

kubelet puts a new version of a mounted ConfigMap into a new directory and turns the link `..data` to it, so the file
of the same name is another file from one moment to the next. An editor writes in pieces, so a file counts as changed
once it has stood still for one look.

Worked example: looks every 2 s at a file that is saved at 3 s: unchanged at 2, new at 4 but perhaps half of it,
`changed` at 6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Generic

from pydantic_core import ErrorDetails

from .errors import ConfigErrors, Finding, Problem, dotted
from .model import Config
from .pydantic_errors import MISSING, UNKNOWN_KEY, AnySection, is_lost, meant_by, salvage, sentence
from .scalars import write_size
from .validate import findings
from .yaml import YamlError, YamlNode, compose, find, place, plain

# A ConfigMap holds no more, and a parser in Python should not be handed a disk image.
LARGEST_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Language(Generic[AnySection]):
    """What a kind of file is read by: its model, what must hold between its values, and the page about it."""

    section: type[AnySection]
    findings: Callable[[AnySection], Iterable[Finding]]
    guide: str


CONFIG = Language(Config, findings, "docs/reference/configuration.md")


def load(path: str | Path) -> Config:
    """The configuration in a file; raises `ConfigErrors`. Its warnings are `check`'s."""
    return parse(read(path), str(path))[0]


def check(path: str | Path) -> list[Problem]:
    """Everything to be said about a file, errors and warnings, in the order of its lines."""
    try:
        return parse(read(path), str(path))[1]
    except ConfigErrors as errors:
        return list(errors.problems)


def read(path: str | Path) -> str:
    """The text of a file; raises `ConfigErrors`."""
    return decode(body_of(path, LARGEST_BYTES), str(path), LARGEST_BYTES)


def body_of(path: str | Path, largest_bytes: int) -> bytes:
    """What stands in a file, or a byte more than the most it may be; raises `ConfigErrors`."""
    try:
        with Path(path).open("rb") as opened:
            return opened.read(largest_bytes + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigErrors([Problem(str(path), None, None, "", f"cannot be read: {reason}")]) from None


def decode(body: bytes, file: str, largest_bytes: int) -> str:
    """The text of it; raises `ConfigErrors`."""
    if len(body) > largest_bytes:
        raise ConfigErrors([Problem(file, None, None, "", f"must be at most {write_size(largest_bytes)}")])
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        begin = body.rfind(b"\n", 0, error.start) + 1
        column = len(body[begin : error.start].decode()) + 1
        message = f"must be UTF-8, got the byte 0x{body[error.start]:02x}"
        raise ConfigErrors([Problem(file, line, column, "", message)]) from None


def parse(text: str, file: str, now: float | None = None) -> tuple[Config, list[Problem]]:
    """The configuration in a text, and its warnings; raises `ConfigErrors`.

    file: for the places only. now: POSIX seconds; None: orders that are over are not looked for.
    """
    return parse_as(replace(CONFIG, findings=partial(findings, now=now)), text, file)


def parse_as(language: Language[AnySection], text: str, file: str) -> tuple[AnySection, list[Problem]]:
    """What a text says in a language, and its warnings; raises `ConfigErrors`."""
    root, troubles = compose(text)
    problems = [Problem(file, *trouble.mark, dotted(trouble.loc), trouble.message) for trouble in troubles]
    config = None
    if root is not None and isinstance(root.value, dict):
        config, more = _examine(language, root, troubles, file)
        problems += more
    elif root is not None and root.value is not None:
        problems.append(Problem(file, *root.mark, "", f"must be a mapping of keys to values, got {root.text}"))
    elif not problems:
        problems.append(Problem(file, 1, 1, "", f"must not be empty: see {language.guide} for what it may say"))
    problems.sort(key=lambda problem: (problem.line or 0, problem.column or 0, problem.key))
    if config is None or any(problem.severity == "error" for problem in problems):
        raise ConfigErrors(problems)
    return config, problems


def _examine(
    language: Language[AnySection], root: YamlNode, troubles: list[YamlError], file: str
) -> tuple[AnySection | None, list[Problem]]:
    spoiled = {trouble.spoils for trouble in troubles if trouble.spoils is not None}
    config, errors, lost = salvage(plain(root), language.section)
    # One slip of the pen is one problem: a misspelt key is not missing too, nor is its default what anybody meant.
    unknown = [error["loc"] for error in errors if error["type"] == UNKNOWN_KEY]
    meant = {loc for each in unknown if (loc := meant_by(each, language.section))}
    absent = spoiled | {loc for loc in meant if find(root, loc) is None}
    problems = [_of_error(error, language, root, file) for error in errors if not is_lost(error["loc"], absent)]
    lost |= absent
    problems += [
        _of_finding(finding, root, file)
        for finding in (language.findings(config) if config else ())
        if not any(is_lost(loc, lost) for loc in (finding.key, *finding.rests_on))
    ]
    return config, problems


def _of_error(error: ErrorDetails, language: Language[AnySection], root: YamlNode, file: str) -> Problem:
    loc = error["loc"]
    message, mark = sentence(error, language.section), place(root, loc)
    node = find(root, loc)
    if error["type"] == UNKNOWN_KEY:
        holder = find(root, loc[:-1])
        mark = holder.keys.get(str(loc[-1]), mark) if holder else mark
    elif error["type"] != MISSING and node is not None:
        message += f", got {node.text}"
    return Problem(file, *mark, dotted(loc), message)


def _of_finding(finding: Finding, root: YamlNode, file: str) -> Problem:
    node = find(root, finding.key)
    written = f", got {node.text}" if node else f", got {finding.got} (the default)"
    message = finding.message + (written if finding.got else "")
    rule = None if finding.rule is None else finding.rule.id
    return Problem(file, *place(root, finding.key), dotted(finding.key), message, finding.severity, rule)


Stamp = tuple[int, int, int]


@dataclass(slots=True)
class FileWatch:
    """Looks at one file, through links. It counts as read when the watch is made."""

    path: Path
    _read: Stamp | None = field(init=False)
    _last: Stamp | None = field(init=False)

    def __post_init__(self) -> None:
        self._read = self._last = _stamp(self.path)

    def changed(self) -> bool:
        """Is it another than when this was last true, and the same as at the last look? A file that is gone is not."""
        before, self._last = self._last, _stamp(self.path)
        if self._last is None or self._last != before or self._last == self._read:
            return False
        self._read = self._last
        return True


def _stamp(path: Path) -> Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
