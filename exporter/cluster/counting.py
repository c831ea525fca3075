"""How many replicas there are, from the pods that there are.

It knows what makes a replica: a pod, or of a LeaderWorkerSet a group of pods with a leader. It refuses to know whose
pods they are and whether the cluster has been heard of lately.

Worked example: a LeaderWorkerSet of groups of 2 has group 0 with both pods ready and group 1 with its leader ready and
its worker still pending: of 2 replicas 1 is ready and 1 pending.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .objects import Pod
from .parse import GROUP_INDEX, WORKER_INDEX


class Tally(NamedTuple):
    """ready: replicas that take requests. pending: replicas that no node runs in full yet. existing: all there are but
    those on their way out. leaving: those of them that still run.
    """

    ready: int
    pending: int
    existing: int
    leaving: int


def leads(pod: Pod) -> bool:
    """Whether it is the pod of its group that takes the requests."""
    return pod.labels.get(WORKER_INDEX) == "0"


def by_pod(pods: Iterable[Pod]) -> Tally:
    """Each pod is a replica. One that has been asked to go is none any more."""
    every = list(pods)
    staying = [pod for pod in every if not pod.leaving]
    leaving = sum(map(_still_runs, every))
    return Tally(sum(pod.ready for pod in staying), sum(map(_is_pending, staying)), len(staying), leaving)


def by_group(pods: Iterable[Pod]) -> Tally:
    """Each group of a LeaderWorkerSet is a replica: ready if its leader is ready and the group is complete."""
    groups: dict[str | None, list[Pod]] = {}
    leaving: set[str | None] = set()
    for pod in pods:
        if not pod.leaving:
            groups.setdefault(pod.labels.get(GROUP_INDEX), []).append(pod)
        elif _still_runs(pod):
            leaving.add(pod.labels.get(GROUP_INDEX))
    groups.pop(None, None)  # of no group: it cannot make one complete
    going = len(leaving - groups.keys() - {None})
    pending = sum(any(map(_is_pending, group)) for group in groups.values())
    return Tally(sum(map(_is_ready, groups.values())), pending, len(groups), going)


def _is_ready(group: Sequence[Pod]) -> bool:
    # The workers of a group may only be made when its leader is ready (startupPolicy): that all are ready does not say
    # that all are there.
    size = max((pod.group_size or 1 for pod in group), default=1)
    return len(group) >= size and any(map(leads, group)) and all(pod.ready for pod in group)


def _is_pending(pod: Pod) -> bool:
    return pod.phase == "Pending"


def _still_runs(pod: Pod) -> bool:
    return pod.leaving and pod.phase == "Running"


def held_by(pods: Iterable[Pod]) -> int:
    """GPUs and MIG instances that these pods asked for and have, because a node runs them."""
    return sum(sum(pod.gpus.values()) for pod in pods if pod.phase == "Running")
