"""Logs the failures of the daemon's parts: one line when a failure begins or changes, one when it ends.

`problem` is a sentence for a person; None: the failure has ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import structlog
from prometheus_client import Counter

from exporter.kubernetes.resources import Resource
from exporter.model import Failure, ScrapeResult, Target


def of_kubernetes(resource: Resource, namespace: str | None, problem: str | None) -> None:
    where = {"resource": resource.name} | ({"namespace": namespace} if namespace else {})
    if problem is None:
        structlog.get_logger().info("Kubernetes watch recovered", **where)
    else:
        structlog.get_logger().warning("Kubernetes watch failed", **where, problem=problem)


def of_scrape(failing: dict[Target, str], scrape: ScrapeResult) -> None:
    """One line when a target begins to fail, fails otherwise, or works again. `failing` is kept up to date."""
    failed = scrape.outcome if isinstance(scrape.outcome, Failure) else None
    before = failing.get(scrape.target)
    if failed is None:
        if before is not None:
            del failing[scrape.target]
            structlog.get_logger().info("scrape recovered", **_fields(scrape.target))
    elif before != failed.kind:
        failing[scrape.target] = failed.kind
        why = {"error": str(failed.kind), "detail": failed.detail, "took_s": round(scrape.took_s, 3)}
        structlog.get_logger().warning("scrape failed", **_fields(scrape.target), **why)


def _fields(target: Target) -> dict[str, str]:
    pod = {} if target.pod is None else {"pod": f"{target.pod.namespace}/{target.pod.pod}"}
    return {"target": str(target), **pod}


def of_front_proxy(problem: str | None) -> None:
    if problem is None:
        structlog.get_logger().info("front proxy configuration recovered")
    else:
        structlog.get_logger().warning("front proxy configuration unknown", problem=problem)


def of_redis(page: str, problems: tuple[str, ...]) -> None:
    if problems:
        structlog.get_logger().warning("Redis read failed", target=page, problem="; ".join(problems))
    else:
        structlog.get_logger().info("Redis read recovered", target=page)


def of_events(namespace: str, problem: str | None) -> None:
    """namespace: "" is any."""
    where = {"namespace": namespace} if namespace else {}
    if problem is None:
        structlog.get_logger().info("event write recovered", **where)
    else:
        structlog.get_logger().warning("event write failed", **where, problem=problem)


def of_files(key: str, problem: str | None) -> None:
    """key: of the configuration, which names the files."""
    if problem is None:
        structlog.get_logger().info("TLS files recovered", key=key)
    else:
        structlog.get_logger().error("TLS files rejected", key=key, problem=problem)


class ExceptionLog:
    """Counts exceptions of Tidegate's own code, and logs each once until the same subject works again."""

    def __init__(self, count: Counter) -> None:
        """count: with one label, the area."""
        self._count = count
        self._logged: set[tuple[str, str]] = set()

    def record(self, area: str, subject: object, error: Exception) -> None:
        self._count.labels(area).inc()
        if (area, str(subject)) not in self._logged:
            self._logged.add((area, str(subject)))
            structlog.get_logger().error("internal error", place=area, subject=str(subject), exc_info=error)

    def resolve(self, area: str, subject: object) -> None:
        self._logged.discard((area, str(subject)))

    @contextmanager
    def contain(self, area: str, subject: object) -> Iterator[None]:
        """An exception in here ends this and nothing else."""
        try:
            yield
        except Exception as error:  # noqa: BLE001
            self.record(area, subject, error)
        else:
            self.resolve(area, subject)
