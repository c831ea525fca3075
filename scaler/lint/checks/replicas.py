"""Who writes the replicas, and between what, and who else moves the pods: TG020 to TG028. Pure.

Worked example: of a ScaledObject and an HPA that both name Deployment/chat, the second one is told that the first
scales it too.

What happens at zero and on the way there: TG001 for an HPA, and TG007 to TG011. Pure.

What is said of Tidegate's own triggers and of KEDA's words around them is `scaler.config`'s.

Worked example: `threshold: "40"` beside `activationThreshold: "50"` at a minimum of 0: with 45 requests the HPA wants
two replicas, and KEDA takes both away.
"""

from __future__ import annotations

from collections.abc import Iterator

from scaler.config import rules
from scaler.config.trigger import ANNOTATION

from ..autoscalers import OUR_METRIC, Autoscaler, LintContext, shown_count
from ..findings import Remark, said
from ..objects import LintWorkload, Thing
from ..promql import query

_TARGET = ("spec", "scaleTargetRef")
_PAUSED = "autoscaling.keda.sh/paused"
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})  # Go's strconv.ParseBool; all else KEDA takes for true
_ADOPTS = "scaledobject.keda.sh/transfer-hpa-ownership"


def two_writers(scaler: Autoscaler, seen: LintContext) -> Iterator[Remark]:
    """Said of the later of two. A ScaledObject that is paused writes nothing, and its HPA is gone."""
    if _is_paused(scaler):
        return
    for before in seen.by_target[scaler.target_key]:
        if before is scaler:
            return
        if _is_paused(before):
            continue
        if before.thing.key != scaler.thing.key and not _made_by(before, scaler):
            kind, name = scaler.target
            where = "" if seen.live else f" ({before.thing.file})"
            yield said(rules.TWO_WRITERS, _TARGET, f"{kind}/{name} is scaled by {before.thing} too{where}")
            return


def _is_paused(scaler: Autoscaler) -> bool:
    """At a number of replicas (paused-replicas) it writes that."""
    said = scaler.value.below("metadata", "annotations") if scaler.is_keda else {}
    paused = said.get(_PAUSED)
    return paused is not None and paused.text not in _FALSE and f"{_PAUSED}-replicas" not in said


def _made_by(one: Autoscaler, other: Autoscaler) -> bool:
    """One is the HPA that KEDA makes, or takes over, for the other."""
    if one.is_kedas or other.is_kedas:
        return True
    if one.is_keda == other.is_keda:
        return False
    scaled, hpa = (one, other) if one.is_keda else (other, one)
    named = scaled.value.read("spec", "advanced", "horizontalPodAutoscalerConfig", "name")
    adopted = scaled.value.read("metadata", "annotations", _ADOPTS) == "true"
    return hpa.thing.name in {f"keda-hpa-{scaled.thing.name}", named} or adopted


def replicas_in_manifest(target: LintWorkload, seen: LintContext) -> Iterator[Remark]:
    """Not in a cluster: there the autoscaler's own number stands in its place."""
    scalers = seen.scalers_of(target)
    if seen.live or not scalers or target.thing.value.at("spec", "replicas") is None:
        return
    message = f"is set back each time this is applied: {scalers[0].thing} scales it"
    yield said(rules.REPLICAS_IN_MANIFEST, ("spec", "replicas"), message)


def max_missing(scaler: Autoscaler, seen: LintContext) -> Iterator[Remark]:
    """An HPA without maxReplicas is none."""
    at = ("spec", "maxReplicaCount")
    if scaler.is_keda and scaler.value.at(*at) is None and (scaler.ours or seen.is_on_gpus(scaler)):
        yield said(
            rules.MAX_MISSING, at, f"is {scaler.highest} where it is left out: say how many the GPUs at hand allow"
        )


def min_above_max(scaler: Autoscaler, _seen: LintContext) -> Iterator[Remark]:
    """Of a trigger of ours, the words are checked against each other already."""
    if scaler.is_keda and scaler.ours:
        return
    # Of KEDA's two, not idleReplicaCount, which is below it.
    written = scaler.value.count("spec", "minReplicaCount") if scaler.is_keda else None
    lowest = scaler.lowest if written is None else written
    if scaler.highest is not None and lowest > scaler.highest:
        most = "maxReplicaCount" if scaler.is_keda else "maxReplicas"
        got = shown_count(scaler.value, *scaler.count_loc) or str(lowest)
        yield said(rules.MIN_ABOVE_MAX, scaler.count_loc, f"must be at most {most} ({scaler.highest})", got)


def zero_without_external(scaler: Autoscaler, _seen: LintContext) -> Iterator[Remark]:
    if scaler.is_keda or scaler.lowest > 0 or any(one.kind in {"External", "Object"} for one in scaler.asked):
        return
    message = "0 needs a metric of type External or Object: the others are measured on pods, of which there are none"
    yield said(rules.ZERO_WITHOUT_EXTERNAL, scaler.count_loc, message)


def formula_replaces(scaler: Autoscaler, _seen: LintContext) -> Iterator[Remark]:
    at = ("spec", "advanced", "scalingModifiers", "formula")
    if scaler.is_keda and scaler.ours and scaler.value.read(*at):
        message = f"replaces {OUR_METRIC}: the HPA hears the formula's number, against scalingModifiers.target"
        yield said(rules.FORMULA_REPLACES, at, message)


def restarted_by_vpa(thing: Thing, seen: LintContext) -> Iterator[Remark]:
    """thing: a VerticalPodAutoscaler. Without a mode it evicts; InPlaceOrRecreate tries not to, and is let be."""
    kind, name = thing.value.read("spec", "targetRef", "kind"), thing.value.read("spec", "targetRef", "name")
    target = seen.workloads.get((kind, thing.namespace, name))
    at = ("spec", "updatePolicy", "updateMode")
    mode = thing.value.read(*at) or "Auto"
    if target is not None and target.on_gpus and mode in {"Auto", "Recreate"}:
        message = f"{mode} evicts pods of {target.thing}, which load their model again each time"
        yield said(rules.RESTARTED_BY_VPA, at, message)


def drain_blocked(thing: Thing, seen: LintContext) -> Iterator[Remark]:
    """thing: a PodDisruptionBudget. How many pods it chooses is known where it chooses those of one workload, and a
    replica of that is one pod.
    """
    least, most = thing.value.at("spec", "minAvailable"), thing.value.at("spec", "maxUnavailable")
    choice = {key: one.text or "" for key, one in thing.value.below("spec", "selector", "matchLabels").items()}
    if not choice or thing.value.items("spec", "selector", "matchExpressions"):
        return
    chosen = [
        target
        for target in seen.workloads.values()
        if target.thing.namespace == thing.namespace and choice.items() <= target.labels.items()
    ]
    for target in chosen:
        scalers = seen.scalers_of(target)
        if not scalers:
            continue
        counted = len(chosen) == 1 and target.thing.kind != "LeaderWorkerSet"
        if not (target.on_gpus or any(one.ours for one in scalers)):
            continue
        lowest = max(1, min(one.lowest for one in scalers))
        if most is not None and most.text in {"0", "0%"}:
            yield said(rules.DRAIN_BLOCKED, ("spec", "maxUnavailable"), f"lets no pod of {target.thing} go, ever")
        elif least is not None and least.text is not None and _blocks(least.text, lowest if counted else None):
            message = (
                f"lets no pod of {target.thing} go while it is at its minimum ({lowest}): no node of its is drained"
            )
            yield said(rules.DRAIN_BLOCKED, ("spec", "minAvailable"), message, least.text)


def _blocks(least: str, lowest: int | None) -> bool:
    """lowest: pods at the minimum; None: not known."""
    return least == "100%" or (lowest is not None and least.isdecimal() and int(least) >= lowest)


_SLOWEST_POLL_S = 60
# What waits and nothing else. `nv_inference_pending_request_count` of Triton is what waits for its scheduler.
_WAITING = frozenset({
    "vllm:num_requests_waiting", "sglang:num_queue_reqs", "tgi_queue_size", "te_queue_size", "num_requests_waiting",
    "trtllm_num_requests_waiting", "nv_inference_pending_request_count", "llamacpp:requests_deferred",
    "lmdeploy:num_requests_waiting", "llm_d_epp_flow_control_queue_size",
    "inference_extension_flow_control_queue_size", "inference_pool_average_queue_size",
})  # fmt: skip


def nothing_wakes(scaler: Autoscaler, seen: LintContext) -> Iterator[Remark]:
    """An HPA at zero whose workload's annotations name no gateway."""
    target = seen.workload_of(scaler)
    if scaler.is_keda or not scaler.ours or scaler.lowest > 0 or target is None:
        return
    words = {key for key in target.thing.value.below("metadata", "annotations") if key.startswith(ANNOTATION)}
    if words and f"{ANNOTATION}gateway" not in words and f"{ANNOTATION}group" not in words:
        message = f"0, and {target.thing} has no {ANNOTATION}gateway: nothing can wake it, so one replica is kept"
        yield said(rules.NO_WAKER, scaler.count_loc, message)


def zero_while_loading(scaler: Autoscaler, seen: LintContext) -> Iterator[Remark]:
    """Tidegate's own triggers are active until idleness is proven."""
    at = ("spec", "initialCooldownPeriod")
    others = scaler.is_keda and not scaler.ours and scaler.asked
    if others and scaler.lowest == 0 and scaler.value.at(*at) is None and seen.is_on_gpus(scaler):
        yield said(rules.ZERO_WHILE_LOADING, at, "is 0 where it is left out: a new one goes to zero at the first poll")


def idle_replica_count(scaler: Autoscaler, _seen: LintContext) -> Iterator[Remark]:
    """Beside a trigger of ours it makes no workload, and is told so there."""
    at = ("spec", "idleReplicaCount")
    count = scaler.value.count(*at) if scaler.is_keda and not scaler.ours else None
    if count:
        yield said(rules.IDLE_REPLICA_COUNT, at, "must be 0: KEDA supports no other", str(count))


def activation_above_target(scaler: Autoscaler, _seen: LintContext) -> Iterator[Remark]:
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


def polled_seldom(scaler: Autoscaler, _seen: LintContext) -> Iterator[Remark]:
    at = ("spec", "pollingInterval")
    wait = scaler.value.count(*at) if scaler.is_keda and scaler.ours and scaler.lowest == 0 else None
    if wait is not None and wait > _SLOWEST_POLL_S:
        yield said(rules.POLLED_SELDOM, at, f"only a poll tells KEDA that it may sleep: up to {wait} s later")


def queue_alone(scaler: Autoscaler, _seen: LintContext) -> Iterator[Remark]:
    """Every trigger is a query, and every metric in them is of what waits."""
    if not scaler.is_keda or scaler.lowest > 0 or not scaler.asked:
        return
    names = [query(one.text).names for one in scaler.asked]
    if all(one.kind == "prometheus" and one.text for one in scaler.asked) and all(
        each and each <= _WAITING for each in names
    ):
        message = "sees only what waits: while everything runs it is 0, and KEDA goes to zero under running requests"
        yield said(rules.QUEUE_ALONE, scaler.asked[0].loc, message)
