"""What the parts of the daemon are in trouble with, as log lines: one as it begins or changes, one when it is over.

Each part says itself when that is; here are only the words. `problem` is a sentence for a person, None: it is over.
"""

from __future__ import annotations

import structlog

from exporter.kubernetes.resources import Resource
from exporter.model import Failure, Scrape, Target


def of_kubernetes(resource: Resource, namespace: str | None, problem: str | None) -> None:
    where = {"resource": resource.name} | ({"namespace": namespace} if namespace else {})
    if problem is None:
        structlog.get_logger().info("Kubernetes is heard again", **where)
    else:
        structlog.get_logger().warning("Kubernetes is not heard", **where, problem=problem)


def of_scrape(failing: dict[Target, str], scrape: Scrape) -> None:
    """One line when a target begins to fail, fails otherwise, or works again. `failing` is kept up to date."""
    failed = scrape.outcome if isinstance(scrape.outcome, Failure) else None
    before = failing.get(scrape.target)
    if failed is None:
        if before is not None:
            del failing[scrape.target]
            structlog.get_logger().info("scrape works again", target=str(scrape.target))
    elif before != failed.kind:
        failing[scrape.target] = failed.kind
        why = {"error": str(failed.kind), "detail": failed.detail, "took_s": round(scrape.took_s, 3)}
        structlog.get_logger().warning("scrape failed", target=str(scrape.target), **why)


def of_front_proxy(problem: str | None) -> None:
    if problem is None:
        structlog.get_logger().info("it is known who may forward requests to the metrics API")
    else:
        structlog.get_logger().warning("whom the metrics API believes is not known", problem=problem)


def of_redis(page: str, troubles: tuple[str, ...]) -> None:
    if troubles:
        structlog.get_logger().warning("queues in Redis are not known", target=page, problem="; ".join(troubles))
    else:
        structlog.get_logger().info("all queues in Redis are known again", target=page)


def of_events(namespace: str, problem: str | None) -> None:
    """namespace: "" is any."""
    where = {"namespace": namespace} if namespace else {}
    if problem is None:
        structlog.get_logger().info("Events can be written again", **where)
    else:
        structlog.get_logger().warning("Events cannot be written; decisions go on without", **where, problem=problem)


def of_files(whose: str, problem: str | None) -> None:
    """whose: the key of the configuration that names them."""
    if problem is None:
        structlog.get_logger().info(f"{whose} files serve again")
    else:
        structlog.get_logger().error(f"{whose} files cannot serve; the previous certificate stays", problem=problem)
