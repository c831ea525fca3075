"""Loads a configuration file: a frozen value, or all its problems, each with file, line and column.

`parse` is pure; `load` reads the file first. Problems come from three steps: the YAML itself (`yaml`), single values
(the model) and values against each other (`validate`).

Worked example: `smoothing: {up: 2s}` in line 14 gives the problem
`config.yaml:14:20: workloads.0.smoothing.up: must be 0 or at least the scrape interval (5s), got 2s`.
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
from .pydantic_errors import MISSING, UNKNOWN_KEY, AnySection, intended_key, is_lost, salvage, sentence
from .scalars import write_size
from .validate import findings
from .yaml import YamlError, YamlNode, compose, find, plain, position_of

LARGEST_BYTES = 2**20  # a ConfigMap holds no more, and parsing more in Python takes too long


@dataclass(frozen=True, slots=True)
class Language(Generic[AnySection]):
    """A kind of file: its model, the checks between its values, and its documentation."""

    section: type[AnySection]
    findings: Callable[[AnySection], Iterable[Finding]]
    guide: str


CONFIG = Language(Config, findings, "docs/reference/configuration.md")


def load(path: str | Path) -> Config:
    """The configuration in a file, without its warnings; raises `ConfigErrors`."""
    return parse(read(path), str(path))[0]


def read(path: str | Path) -> str:
    """The text of a file; raises `ConfigErrors`."""
    return decode(body_of(path, LARGEST_BYTES), str(path), LARGEST_BYTES)


def body_of(path: str | Path, largest_bytes: int) -> bytes:
    """The content of a file, cut one byte above the limit; raises `ConfigErrors`."""
    try:
        with Path(path).open("rb") as opened:
            return opened.read(largest_bytes + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigErrors([Problem(str(path), None, None, "", f"cannot be read: {reason}")]) from None


def decode(body: bytes, file: str, largest_bytes: int) -> str:
    """The text of a file's content; raises `ConfigErrors`."""
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

    file: only for positions. now: POSIX seconds; None skips checks for expired brakes.
    """
    return parse_as(replace(CONFIG, findings=partial(findings, now=now)), text, file)


def parse_as(language: Language[AnySection], text: str, file: str) -> tuple[AnySection, list[Problem]]:
    """The value of a text in a language, and its warnings; raises `ConfigErrors`."""
    root, errors = compose(text)
    problems = [Problem(file, *error.mark, dotted(error.loc), error.message) for error in errors]
    config = None
    if root is not None and isinstance(root.value, dict):
        config, more = _validate(language, root, errors, file)
        problems += more
    elif root is not None and root.value is not None:
        problems.append(Problem(file, *root.mark, "", f"must be a mapping of keys to values, got {root.text}"))
    elif not problems:
        problems.append(Problem(file, 1, 1, "", f"must not be empty: see {language.guide} for its keys"))
    problems.sort(key=lambda problem: (problem.line or 0, problem.column or 0, problem.key))
    if config is None or any(problem.severity == "error" for problem in problems):
        raise ConfigErrors(problems)
    return config, problems


def _validate(
    language: Language[AnySection], root: YamlNode, yaml_errors: list[YamlError], file: str
) -> tuple[AnySection | None, list[Problem]]:
    config, errors, lost = salvage(plain(root), language.section)
    # A misspelt key is one problem: the key that was meant is neither missing nor at its default.
    unknown = [error["loc"] for error in errors if error["type"] == UNKNOWN_KEY]
    intended = {loc for each in unknown if (loc := intended_key(each, language.section))}
    absent = {error.spoils for error in yaml_errors if error.spoils is not None}
    absent |= {loc for loc in intended if find(root, loc) is None}
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
    message, mark = sentence(error, language.section), position_of(root, loc)
    node = find(root, loc)
    if error["type"] == UNKNOWN_KEY:
        holder = find(root, loc[:-1])
        mark = holder.keys.get(str(loc[-1]), mark) if holder else mark
    elif error["type"] != MISSING and node is not None:
        message += f", got {node.text}"
    return Problem(file, *mark, dotted(loc), message)


def _of_finding(finding: Finding, root: YamlNode, file: str) -> Problem:
    node = find(root, finding.key)
    got = f", got {node.text}" if node else f", got {finding.got} (the default)"
    message = finding.message + ("" if finding.got is None else got)
    rule = None if finding.rule is None else finding.rule.id
    return Problem(file, *position_of(root, finding.key), dotted(finding.key), message, finding.severity, rule)


Stamp = tuple[int, int, int]


@dataclass(slots=True)
class FileWatch:
    """Polls one file for changes, through symbolic links. The version at construction counts as read.

    kubelet updates a mounted ConfigMap by switching the symbolic link `..data` to a new directory, so the file changes
    in one step. An editor writes in pieces: a change counts after two polls with the same result.

    Worked example: polled every 2 s, a file saved at 3 s is unchanged at 2 s, different at 4 s but possibly incomplete,
    and `changed` at 6 s.
    """

    path: Path
    _read: Stamp | None = field(init=False)
    _last: Stamp | None = field(init=False)

    def __post_init__(self) -> None:
        self._read = self._last = _stamp(self.path)

    def changed(self) -> bool:
        """Whether the file differs from the last version returned, and is stable. A missing file has not changed."""
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
