"""Measures the in-memory cluster: a list, an event, a look-up, the registry, and a decider for another list of
workloads.

`python benchmarks/cluster.py [--quick]`
"""

from __future__ import annotations

import json
import sys
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # builders of the fake Kubernetes API

import policy
from report import show
from timing import Spread, objects_set_aside, seconds

from exporter.discovery.kubernetes import PodTargets
from exporter.kubernetes.cache import Cluster
from exporter.kubernetes.objects import Ref
from exporter.kubernetes.resources import DEPLOYMENTS, HPAS, PODS, REPLICASETS, RESOURCES, SCALEDOBJECTS
from exporter.model import Role, Target, WorkloadKey
from scaler.config import parse
from scaler.engine.decider import Decider
from scaler.workloads import take
from scaler.workloads.supply_table import SupplySource
from tests.fakes import objects as api

TITLE = "The cluster in memory"
ABOUT = """
One process, one thread, no network; objects as the API prints them. Each workload is a ScaledObject with one trigger,
a Deployment, its ReplicaSet and 4 pods. "list pods" is a list of all of them that has arrived, trimmed and indexed for
the first time; `json.loads` of the same list is the lower bound for any client. "pod changes" is one relevant watch
event (ready or not); "look" is the listing of one workload's pods after it. "registry" parses all ScaledObjects again,
which happens when one of them changes. "another list of workloads" is a Decider that takes over from one with the same
workloads. "GPUs" is the supply of GPUs that workloads share: made anew, and after one pod has begun to terminate or has
come back. Repeat with `python benchmarks/cluster.py`.
"""

PODS_EACH = 4
START = 1.7e9
CONFIG = parse("kubernetes: {}", "config.yaml")[0]


def documents(workloads: int) -> dict[Any, list[dict[str, Any]]]:
    names = [f"w{number}" for number in range(workloads)]
    pods = [
        api.pod(
            f"{name}-5d4f7b8c-{number}",
            owner=("ReplicaSet", f"{name}-5d4f7b8c"),
            address=f"10.{index // 16384}.{index // 64 % 256}.{index % 64 * PODS_EACH + number}",
            gpus=1,
        )
        for index, name in enumerate(names)
        for number in range(PODS_EACH)
    ]
    metadata = {"scalerAddress": "tidegate.tidegate.svc:6000", "engine": "vllm", "keep_warm": "10m"}
    triggers = [{"type": "external-push", "metadata": metadata}]
    return {
        PODS: pods,
        REPLICASETS: [api.replicaset(f"{name}-5d4f7b8c", owner=("Deployment", name)) for name in names],
        DEPLOYMENTS: [api.deployment(name, replicas=PODS_EACH) for name in names],
        SCALEDOBJECTS: [api.scaled_object(name, target=name, triggers=triggers) for name in names],
        HPAS: [],
    }


def filled(given: dict[Any, list[dict[str, Any]]]) -> Cluster:
    cluster = Cluster(blind_s=60.0)
    for resource in RESOURCES:
        cluster.replace(resource, None, given.get(resource, []), START)
    cluster.take_changes()
    return cluster


def unready_of(pod: dict[str, Any]) -> dict[str, Any]:
    copied: dict[str, Any] = json.loads(json.dumps(pod))
    (condition,) = (each for each in copied["status"]["conditions"] if each["type"] == "Ready")
    condition["status"] = "False"
    return copied


def changing(cluster: Cluster, pods: list[dict[str, Any]]) -> Spread:
    """Microseconds per event: every pod in turn becomes ready or unready."""
    unready = [unready_of(pod) for pod in pods]
    events = cycle([*unready, *pods])

    def change() -> None:
        cluster.apply(PODS, "MODIFIED", next(events), START)
        cluster.take_changes()

    return seconds(change).times(1e6)


def _price(_model: str | None) -> float:
    return 1.0


def supplying(cluster: Cluster, workloads: int, pods: list[dict[str, Any]]) -> tuple[Spread, Spread]:
    """Microseconds: made anew, and after one pod has changed."""
    targets = {WorkloadKey("ai", f"w{number}"): Ref("ai", "Deployment", f"w{number}") for number in range(workloads)}
    keys = list(targets)

    def anew() -> None:
        SupplySource({}, _price).at(cluster, keys, targets, START)

    leaving = [{**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "2026-11-01T11:00:30Z"}} for pod in pods]
    events = cycle([*leaving, *pods])
    source = SupplySource({}, _price)

    def change() -> None:
        cluster.apply(PODS, "MODIFIED", next(events), START)
        source.at(cluster, keys, targets, START)

    return seconds(anew, rounds=5).times(1e6), seconds(change).times(1e6)


def looking(cluster: Cluster) -> Spread:
    key = WorkloadKey("ai", "w0")
    targets = PodTargets(
        cluster, Ref("ai", "Deployment", "w0"), lambda at: Target(f"http://{at}:8000/", "vllm", Role.PODS, key), key
    )

    def look() -> None:
        try:
            targets.refresh(START).send(None)
        except StopIteration:  # never reached
            return

    return seconds(look).times(1e6)


def counting(cluster: Cluster) -> Spread:
    def count() -> None:
        take(CONFIG, cluster.scaled_objects(), cluster.scalables(), ())

    return seconds(count, rounds=5).times(1e6)


def taking_over(workloads: int) -> Spread:
    fleet, _ = policy.fleet(workloads, cycle(policy.engine_pages()))
    deciders = [fleet]

    def change() -> None:
        after = Decider(fleet.plans, interval_s=policy.INTERVAL_S, fresh_intervals=3.0, log_bytes=policy.LOG)
        after.take_over(deciders[0])
        deciders[0] = after

    return seconds(change, rounds=5, round_s=0.01).times(1e3)


def run(quick: bool = False) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for workloads in (100,) if quick else (100, 1_000):
        given = documents(workloads)
        body = json.dumps({"items": given[PODS]})
        cluster = filled(given)
        with objects_set_aside():
            anew, changed = supplying(cluster, workloads, given[PODS])
            rows += [
                row("list pods, json.loads", workloads, seconds(partial(json.loads, body), rounds=5).times(1e6)),
                row("list pods, trimmed and indexed", workloads, seconds(partial(filled, given), rounds=5).times(1e6)),
                row("pod changes", workloads, changing(cluster, given[PODS])),
                row("look", workloads, looking(cluster)),
                row("GPUs, made anew", workloads, anew),
                row("GPUs, one pod changed", workloads, changed),
                row(
                    "registry",
                    workloads,
                    counting(cluster),
                ),
                row("another list of workloads", workloads, taking_over(workloads).times(1e3)),
            ]
    return rows


def row(what: str, workloads: int, us: Spread) -> dict[str, Any]:
    return {"what": what, "workloads": workloads, "pods": workloads * PODS_EACH, "µs": us}


if __name__ == "__main__":
    show(run("--quick" in sys.argv))
