"""What happens at zero and on the way there: TG001 for an HPA, and TG007 to TG011. Pure.

What is said of Tidegate's own triggers and of KEDA's words around them is `scaler.config`'s.

Worked example: `threshold: "40"` beside `activationThreshold: "50"` at a minimum of 0: with 45 requests the HPA wants
two replicas, and KEDA takes both away.
"""

from __future__ import annotations

from collections.abc import Iterator

from .. import rules
from ..config.remark import Remark
from ..config.trigger import ANNOTATION
from .autoscalers import Autoscaler
from .queries import query
from .seen import Seen, said

_SLOWEST_POLL_S = 60
# What waits and nothing else. `nv_inference_pending_request_count` of Triton is what waits for its scheduler.
_WAITING = frozenset({
    "vllm:num_requests_waiting", "sglang:num_queue_reqs", "tgi_queue_size", "te_queue_size", "num_requests_waiting",
    "trtllm_num_requests_waiting", "nv_inference_pending_request_count", "llamacpp:requests_deferred",
    "lmdeploy:num_requests_waiting", "llm_d_epp_flow_control_queue_size",
    "inference_extension_flow_control_queue_size", "inference_pool_average_queue_size",
})  # fmt: skip


def nothing_wakes(scaler: Autoscaler, seen: Seen) -> Iterator[Remark]:
    """An HPA at zero whose workload's annotations name no gateway."""
    target = seen.workload_of(scaler)
    if scaler.is_keda or not scaler.ours or scaler.lowest > 0 or target is None:
        return
    words = {key for key in target.thing.value.below("metadata", "annotations") if key.startswith(ANNOTATION)}
    if words and f"{ANNOTATION}gateway" not in words and f"{ANNOTATION}group" not in words:
        message = f"0, and {target.thing} has no {ANNOTATION}gateway: nothing can wake it, so one replica is kept"
        yield said(rules.NO_WAKER, scaler.count_loc, message)


def zero_while_loading(scaler: Autoscaler, seen: Seen) -> Iterator[Remark]:
    """Tidegate's own triggers are active until idleness is proven."""
    at = ("spec", "initialCooldownPeriod")
    others = scaler.is_keda and not scaler.ours and scaler.asked
    if others and scaler.lowest == 0 and scaler.value.at(*at) is None and seen.is_on_gpus(scaler):
        yield said(rules.ZERO_WHILE_LOADING, at, "is 0 where it is left out: a new one goes to zero at the first poll")


def idle_replica_count(scaler: Autoscaler, _seen: Seen) -> Iterator[Remark]:
    """Beside a trigger of ours it makes no workload, and is told so there."""
    at = ("spec", "idleReplicaCount")
    count = scaler.value.count(*at) if scaler.is_keda and not scaler.ours else None
    if count:
        yield said(rules.IDLE_REPLICA_COUNT, at, "must be 0: KEDA supports no other", str(count))


def activation_above_target(scaler: Autoscaler, _seen: Seen) -> Iterator[Remark]:
    """Only of a lone trigger: another one may well keep it awake meanwhile."""
    for one in scaler.asked if scaler.is_keda and scaler.lowest == 0 and len(scaler.asked) == 1 else ():
        if one.activates is not None and one.target is not None and one.activates > one.target:
            message = (
                f"activates above {one.activates:g} and scales at {one.target:g}: between them the HPA wants more than "
                "one replica, and KEDA takes all away"
            )
            yield said(rules.ACTIVATION_ABOVE_TARGET, (*one.at, "metadata", _activation(scaler, one.at)), message)


def _activation(scaler: Autoscaler, at: tuple[int | str, ...]) -> str:
    return next(key for key in _metadata(scaler, at) if key.startswith("activation"))


def _metadata(scaler: Autoscaler, at: tuple[int | str, ...]) -> list[str]:
    found = scaler.value.at(*at, "metadata")
    return [] if found is None else list(found.entries())


def polled_seldom(scaler: Autoscaler, _seen: Seen) -> Iterator[Remark]:
    at = ("spec", "pollingInterval")
    wait = scaler.value.count(*at) if scaler.is_keda and scaler.ours and scaler.lowest == 0 else None
    if wait is not None and wait > _SLOWEST_POLL_S:
        yield said(rules.POLLED_SELDOM, at, f"only a poll tells KEDA that it may sleep: up to {wait} s later")


def queue_alone(scaler: Autoscaler, _seen: Seen) -> Iterator[Remark]:
    """Every trigger is a query, and every metric in them is of what waits."""
    if not scaler.is_keda or scaler.lowest > 0 or not scaler.asked:
        return
    names = [query(one.text).names for one in scaler.asked]
    if all(one.kind == "prometheus" and one.text for one in scaler.asked) and all(
        each and each <= _WAITING for each in names
    ):
        message = "sees only what waits: while everything runs it is 0, and KEDA goes to zero under running requests"
        yield said(rules.QUEUE_ALONE, scaler.asked[0].loc, message)
