"""Reads the configuration of `tidegate export` in a child process, so that this one loads neither pydantic nor YAML.

They take 10 of the 60 MB that the command may use, and are needed once.

Worked example: `read_in_child("export.yaml")` returns `Settings(host="0.0.0.0", port=9410, …)`, or raises
UnusableConfig with the lines that `tidegate check` prints.
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
class PageSettings:
    """One metrics page that is a source."""

    url: str
    kind: str
    access: Credentials


@dataclass(frozen=True, slots=True)
class Settings:
    """The configuration as plain values. Times are seconds.

    engines: pages of engines. gpus: page of the node's GPUs, if any. nvml: read the GPUs from the driver.
    pod:     show only the GPUs of this pod; None shows all. pod_uid: its UID, if needed.
    node:    name of this node, if known.
    """

    host: str
    port: int
    interval_s: float
    timeout_s: float
    body_limit: int
    log_format: str
    log_level: str
    engines: tuple[PageSettings, ...]
    gpus: PageSettings | None
    nvml: bool
    pod: PodKey | None
    pod_uid: str | None
    node: str | None
    warnings: tuple[str, ...]


class UnusableConfig(Exception):  # noqa: N818 - named after the side at fault
    """The configuration is invalid; `lines` are its errors."""

    def __init__(self, lines: tuple[str, ...]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


def read_in_child(file: str) -> Settings:
    """Raises UnusableConfig."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        _run_child(file, write_end)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        pickled = pipe.read()
    _, status = os.waitpid(child, 0)
    if status != 0:
        raise UnusableConfig((f"{file}: cannot be read: the process that reads it has failed",))
    settings = pickle.loads(pickled)  # noqa: S301 - written by the child
    if not isinstance(settings, Settings):
        raise UnusableConfig(settings)
    return settings


def _run_child(file: str, write_end: int) -> NoReturn:
    try:
        with os.fdopen(write_end, "wb") as pipe:
            pickle.dump(_settings(file, os.environ), pipe)
    except BaseException:  # noqa: BLE001 - no code of the parent may run in its copy
        traceback.print_exc(file=sys.stderr)
        os._exit(1)
    os._exit(0)


def _settings(file: str, environment: Mapping[str, str]) -> Settings | tuple[str, ...]:
    """The settings, or the errors of the configuration."""
    from exporter.sources.nvml import NotInstalled, installed  # noqa: PLC0415 - only in the child
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
        page = None if url is None else PageSettings(url, GPUS, admission(gpus.access or Written()))
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
        engines=tuple(
            PageSettings(each.address, each.kind, admission(each.access or Written())) for each in config.engines
        ),
        gpus=page,
        nvml=gpus is not None and gpus.nvml,
        pod=pod,
        pod_uid=environment.get(POD_UID) or None,
        node=environment.get(NODE_NAME) or None,
        warnings=tuple(str(warning) for warning in warnings),
    )
