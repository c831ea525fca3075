"""Defines the configuration of `tidegate export`: the sources of its page, and how they are scraped.

The address of the node and the name of the pod come from the environment (Kubernetes' downward API), because one
ConfigMap serves every pod of a Deployment.

Worked example: `engines: [{kind: vllm}]` with `gpus: {node_port: 9400, of: pod}` scrapes vLLM on this pod's loopback,
and the node's dcgm-exporter for the GPUs of this pod.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field

from exporter.catalog import KINDS
from exporter.catalog.export import PORT

from .endpoint import Access, Many, Port, Section, page, with_path
from .errors import Finding, Loc, Problem
from .loader import Language, parse_as
from .model import GiB, Interval, KiB, Log, MiB, default_timeout
from .scalars import ADDRESS, GPUS, URL, Address, size
from .validate import interval_findings
from .validate_endpoint import access_findings
from .workload import Engine
from .yaml import compose

# Environment variables; deploy/kustomize sets them from the downward API.
NODE_IP, NAMESPACE, POD = "TIDEGATE_NODE_IP", "TIDEGATE_POD_NAMESPACE", "TIDEGATE_POD_NAME"
POD_UID = "TIDEGATE_POD_UID"
NODE_NAME = "TIDEGATE_NODE_NAME"  # optional: label of the GPUs that NVML shows, so that a board can tell nodes apart
_FIELDS = {NODE_IP: "status.hostIP", NAMESPACE: "metadata.namespace", POD: "metadata.name", POD_UID: "metadata.uid"}
GUIDE = "docs/how-to/collect-only.md"


class ExportScrape(Section):
    """How sources are scraped."""

    interval: Interval = 5.0
    """Time between scrapes of a source. Shorter detects bursts sooner and loads the engine more."""
    timeout: Interval = Field(default_factory=default_timeout)
    """Time limit of a scrape, at most `interval`; then the source is down until the next. Default: 3s, or `interval` if
    shorter."""
    body_limit: Annotated[int, size(KiB, GiB)] = 8 * MiB
    """Larger responses fail."""


class EnginePage(Section):
    """One engine's metrics endpoint, usually on the pod's loopback."""

    kind: Engine
    """Kind of the engine."""
    url: Annotated[str, URL] | None = None
    """Metrics endpoint. null: the kind's default port and path on 127.0.0.1."""
    access: Access | None = None
    """Credentials and TLS. null: none."""

    @property
    def address(self) -> str:
        """The URL to scrape."""
        kind = KINDS[self.kind]
        return page("http", "127.0.0.1", kind.port, kind.path) if self.url is None else with_path(self.url, kind.path)


class NodeGpus(Section):
    """Source of this node's GPUs: one of `url`, `node_port`, `nvml`."""

    url: Annotated[str, URL] | None = None
    """dcgm-exporter's metrics endpoint. A Service needs `internalTrafficPolicy: Local`; else it reaches any node."""
    node_port: Port | None = None
    """Port of dcgm-exporter at this node's address (TIDEGATE_NODE_IP): 9400 if it uses the host network or a
    hostPort."""
    nvml: bool = False
    """Reads the driver, on nodes without dcgm-exporter. The container needs the GPU devices and the host's processes.
    With `of: node` no GPU is attributed: the pod of a process is unknown."""
    access: Access | None = None
    """Credentials and TLS of dcgm-exporter. null: none."""
    of: Literal["node", "pod"] = "node"
    """`pod`: only the GPUs of this pod (TIDEGATE_POD_NAMESPACE, TIDEGATE_POD_NAME). Without it, scraping every pod
    counts a node's GPUs once per pod."""

    def address(self, environment: Mapping[str, str]) -> str | None:
        """The URL to scrape; None for NVML."""
        if self.node_port is not None:
            return page("http", environment[NODE_IP], self.node_port, KINDS[GPUS].path)
        return None if self.url is None else with_path(self.url, KINDS[GPUS].path)


class ExportConfig(Section):
    """Configuration of `tidegate export`."""

    listen: Annotated[Address, ADDRESS] = Address("0.0.0.0", PORT)  # noqa: S104  a pod's address is not known yet
    """`/metrics`, `/livez`, `/readyz`. Plain HTTP. A port in use is an error."""
    scrape: ExportScrape = ExportScrape()
    """How sources are scraped."""
    log: Log = Log()
    """Log."""
    engines: Annotated[tuple[EnginePage, ...], Many] = ()
    """Engines beside this container."""
    gpus: NodeGpus | None = None
    """Source of GPUs. null: none."""


def parse_export(text: str, file: str, environment: Mapping[str, str] | None) -> tuple[ExportConfig, list[Problem]]:
    """The configuration in a text, and its warnings; raises `ConfigErrors`.

    environment: of the process that will use it; None skips its checks.
    """
    return parse_as(Language(ExportConfig, partial(_findings, environment), GUIDE), text, file)


def is_export(text: str) -> bool:
    """Whether a text configures `tidegate export`: it has engines, or GPUs as a mapping, and no workloads."""
    root, _ = compose(text)
    keys: Any = root.value if root is not None else None
    if not isinstance(keys, dict) or "workloads" in keys:
        return False
    return "engines" in keys or ("gpus" in keys and isinstance(keys["gpus"].value, dict))


def _findings(environment: Mapping[str, str] | None, config: ExportConfig) -> Iterator[Finding]:
    yield from interval_findings(config.scrape.interval, config.scrape.timeout)
    if not config.engines and config.gpus is None:
        bound = "must name an engine, or gpus must be given: the page would be empty"
        yield Finding(("engines",), bound, rests_on=(("gpus",),))
    first: dict[str, int] = {}
    for index, engine in enumerate(config.engines):
        at: Loc = ("engines", index)
        twin = first.setdefault(engine.address, index)
        if twin != index:
            bound = f"must be another target than that of engines.{twin}"
            yield Finding((*at, "url"), bound, engine.address, rests_on=(("engines", twin), (*at, "kind")))
        if engine.access is not None:
            is_plain_http = not engine.address.startswith("https:")
            yield from access_findings((*at, "access"), engine.access, is_plain_http, ((*at, "url"), (*at, "kind")))
    if config.gpus is not None:
        yield from _gpus(config.gpus, environment)


def _gpus(gpus: NodeGpus, environment: Mapping[str, str] | None) -> Iterator[Finding]:
    at: Loc = ("gpus",)
    locators = {"url": gpus.url is not None, "node_port": gpus.node_port is not None, "nvml": gpus.nvml}
    given = [locator for locator, is_given in locators.items() if is_given]
    rests_on: tuple[Loc, ...] = tuple((*at, locator) for locator in locators)
    if len(given) != 1:
        detail = f": {' and '.join(given)} are given" if given else ": it locates the source"
        bound = f"must have {'only ' if given else ''}one of {', '.join(locators)}{detail}"
        yield Finding(at, bound, rests_on=rests_on)
    if gpus.access is not None:
        is_plain_http = gpus.url is None or not gpus.url.startswith("https:")
        yield from access_findings((*at, "access"), gpus.access, is_plain_http, rests_on)
    if gpus.node_port is not None:
        yield from _needs((*at, "node_port"), (NODE_IP,), environment)
    if gpus.of == "pod":
        yield from _needs((*at, "of"), (NAMESPACE, POD, *((POD_UID,) if gpus.nvml else ())), environment)


def _needs(at: Loc, names: tuple[str, ...], environment: Mapping[str, str] | None) -> Iterator[Finding]:
    for name in names:
        if environment is not None and not environment.get(name):
            yield Finding(at, f"needs the environment variable {name} (downward API: {_FIELDS[name]})")
