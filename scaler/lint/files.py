"""Files, configurations and manifests among each other -> everything that is to be said of them.

Manifests are checked against the configuration they will meet, if one is among the files, and against each other: an
autoscaler of one file and the Deployment of another are seen together. What only the machine that `tidegate export` is
to run on knows, its environment, is not asked of its configuration.

Worked example: `check_files(["config.yaml", "scaledobject.yaml"])` says of a trigger with `gateway: epp` whether `epp`
is a shared gateway of config.yaml; without config.yaml it is taken for a Service.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from exporter.model import WorkloadKey

from ..config import Config, ConfigErrors, Problem, parse
from ..config.documents import documents
from ..config.export import is_export, parse_export
from ..config.load import LARGEST_BYTES as LARGEST_CONFIG
from ..config.load import body_of, decode
from ..config.orders_shown import orders_shown
from ..config.problem import dotted
from ..config.wakers import woken_by
from .linted import linted
from .manifests import LARGEST_BYTES, is_manifest
from .things import Thing, is_prometheus, things

STDIN = "-"


class Report(NamedTuple):
    """problems: by file, in the order given. passed_over: objects that no rule reads.

    wakers: of each workload of the configurations, what would wake it, in words.
    orders: by workload, what brakes and schedules of the configurations order now and next, in words.
    """

    problems: list[Problem]
    passed_over: int
    wakers: Mapping[WorkloadKey, str]
    orders: Mapping[str, list[str]]


def check_files(
    files: Sequence[str], now: float | None = None, ignored: frozenset[str] = frozenset(), stdin: bytes = b""
) -> Report:
    """now: POSIX seconds; None: what is over, and what holds now, is not said. ignored: ids of rules. stdin: what
    the file `-` holds.
    """
    said: dict[str, list[Problem]] = {}
    manifests: dict[str, str] = {}
    configs: list[Config] = []
    for file in files:
        try:
            body = stdin if file == STDIN else body_of(file, LARGEST_BYTES)
            text = decode(body, file, LARGEST_BYTES)
            if is_manifest(text) or is_prometheus(text):
                manifests[file] = text
            else:
                said[file] = _configuration(decode(body, file, LARGEST_CONFIG), file, configs, now)
        except ConfigErrors as errors:
            said[file] = list(errors.problems)
    found: list[Thing] = []
    for file, text in manifests.items():
        roots, troubles = documents(text)
        said[file] = [Problem(file, *trouble.mark, dotted(trouble.loc), trouble.message) for trouble in troubles]
        found += [thing for root in roots for thing in things(root, file)]
    run = linted(found, configs[0] if len(configs) == 1 else None, now, ignored)
    for problem in run.problems:
        said[problem.file].append(problem)
    for problems in said.values():
        problems.sort(key=lambda problem: (problem.line or 0, problem.column or 0, problem.key))
    wakers = {workload.key: woken_by(workload) for config in configs for workload in config.workloads}
    orders = {} if now is None else {name: words for one in configs for name, words in orders_shown(one, now).items()}
    kept = [problem for file in files for problem in said[file] if problem.rule not in ignored]
    return Report(kept, run.passed_over, wakers, orders)


def _configuration(text: str, file: str, configs: list[Config], now: float | None) -> list[Problem]:
    """Its warnings; raises ConfigErrors. What it says is one of `configs` then."""
    if is_export(text):
        return parse_export(text, file, None)[1]
    config, warnings = parse(text, file, now)
    configs.append(config)
    return warnings
