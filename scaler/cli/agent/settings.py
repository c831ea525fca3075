"""The configuration of `tidegate export` without its model: read by a process of its own, which ends.

The model and its parser would take a sixth of the memory that this command may have, and are needed once.

Worked example: `read_apart("export.yaml")` is `Settings(host="0.0.0.0", port=9410, …)`, or raises `Refused` with the
lines that `tidegate check` would print.
"""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from exporter.model import Credentials, PodKey


@dataclass(frozen=True, slots=True)
class PageAt:
    """One page that is a source."""

    url: str
    kind: str
    access: Credentials


@dataclass(frozen=True, slots=True)
class Settings:
    """The configuration without its model. Times are seconds.

    engines: pages of engines. gpus: the page of the node's GPUs, if there is one. nvml: the driver is asked for them.
    pod:     whose GPUs alone are shown, and its UID where that is needed; None is everybody's.
    node:    the name of this node, where somebody says it.
    """

    host: str
    port: int
    interval_s: float
    timeout_s: float
    body_limit: int
    log_format: str
    log_level: str
    engines: tuple[PageAt, ...]
    gpus: PageAt | None
    nvml: bool
    pod: PodKey | None
    pod_uid: str | None
    node: str | None
    warnings: tuple[str, ...]


class UnusableConfig(Exception):  # noqa: N818 - it is what became of the configuration
    """The configuration cannot be used; `lines` say why."""

    def __init__(self, lines: tuple[str, ...]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


def read_apart(file: str) -> Settings:
    """The configuration in a file, read by a process of its own. Raises Refused."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _tell(file, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    if status != 0:
        raise UnusableConfig((f"{file}: cannot be read: the process that reads it has failed",))
    settings = pickle.loads(told)  # noqa: S301 - written by our own child
    if not isinstance(settings, Settings):
        raise UnusableConfig(settings)
    return settings


def _tell(file: str, writing: int) -> NoReturn:
    """What `read_apart`'s child does: says what the file says, and ends without a word to anybody else."""
    try:
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(_settings(file, os.environ), pipe)
    except BaseException:  # noqa: BLE001 - nothing of the parent's may run on in its copy
        traceback.print_exc(file=sys.stderr)
        os._exit(1)
    os._exit(0)


def _settings(file: str, environment: Mapping[str, str]) -> Settings | tuple[str, ...]:
    from exporter.sources.nvml import NotInstalled, installed  # noqa: PLC0415 - only in a process that ends
    from scaler.config import ConfigErrors, read  # noqa: PLC0415
    from scaler.config.agent import NAMESPACE, NODE_NAME, POD, POD_UID, parse_export  # noqa: PLC0415
    from scaler.config.endpoint import Access as Written  # noqa: PLC0415
    from scaler.config.endpoint import admission  # noqa: PLC0415
    from scaler.config.scalars import GPUS  # noqa: PLC0415

    try:
        config, warnings = parse_export(read(file), file, environment)
    except ConfigErrors as errors:
        return tuple(str(problem) for problem in errors.problems)
    gpus, page, pod = config.gpus, None, None
    if gpus is not None:
        url = gpus.address(environment)
        page = None if url is None else PageAt(url, GPUS, admission(gpus.access or Written()))
        pod = PodKey(environment[NAMESPACE], environment[POD]) if gpus.of == "pod" else None
        if gpus.nvml:
            try:
                installed()
            except NotInstalled as error:
                return (f"{file}: {error}",)
    return Settings(
        host=config.listen.host,
        port=config.listen.port,
        interval_s=config.scrape.interval,
        timeout_s=config.scrape.timeout,
        body_limit=config.scrape.body_limit,
        log_format=config.log.format,
        log_level=config.log.level,
        engines=tuple(PageAt(each.address, each.kind, admission(each.access or Written())) for each in config.engines),
        gpus=page,
        nvml=gpus is not None and gpus.nvml,
        pod=pod,
        pod_uid=environment.get(POD_UID) or None,
        node=environment.get(NODE_NAME) or None,
        warnings=tuple(str(warning) for warning in warnings),
    )
