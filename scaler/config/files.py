"""Files, configurations and manifests among each other -> everything that is to be said of them.

Manifests are checked against the configuration they will meet, if one is among the files. What only the machine that
`tidegate export` is to run on knows, its environment, is not asked of its configuration.

Worked example: `check_files(["config.yaml", "scaledobject.yaml"])` says of a trigger with `gateway: epp` whether `epp`
is a shared gateway of config.yaml; without config.yaml it is taken for a Service.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from exporter.model import WorkloadKey

from .export import is_export, parse_export
from .load import parse, read
from .manifests import LARGEST_BYTES, check_manifests, is_manifest
from .model import Config
from .orders_shown import orders_shown
from .problem import ConfigErrors, Problem
from .wakers import woken_by


class Report(NamedTuple):
    """problems: by file, in the order given. passed_over: documents of manifests that say nothing to Tidegate.

    wakers: of each workload of the configurations, what would wake it, in words.
    orders: by workload, what brakes and schedules of the configurations order now and next, in words.
    """

    problems: list[Problem]
    passed_over: int
    wakers: Mapping[WorkloadKey, str]
    orders: Mapping[str, list[str]]


def check_files(files: Sequence[str], now: float | None = None) -> Report:
    """now: POSIX seconds; None: what is over, and what holds now, is not said."""
    said: dict[str, list[Problem]] = {}
    manifests: dict[str, str] = {}
    configs: list[Config] = []
    for file in files:
        try:
            text = read(file, LARGEST_BYTES)
            if is_manifest(text):
                manifests[file] = text
                continue
            if is_export(text):
                _, said[file] = parse_export(read(file), file, None)
                continue
            config, said[file] = parse(read(file), file, now)
            configs.append(config)
        except ConfigErrors as errors:
            said[file] = list(errors.problems)
    passed_over = 0
    for file, text in manifests.items():
        checked = check_manifests(text, file, configs[0] if len(configs) == 1 else None, now)
        said[file] = checked.problems
        passed_over += checked.passed_over
    wakers = {workload.key: woken_by(workload) for config in configs for workload in config.workloads}
    orders = {} if now is None else {name: words for one in configs for name, words in orders_shown(one, now).items()}
    return Report([problem for file in files for problem in said[file]], passed_over, wakers, orders)
