"""Checks replicas: scaling to zero and back (TG001 for an HPA, TG007 to TG011), and what sets them (TG020 to TG028).

Pure. `triggers` checks Tidegate's own triggers and KEDA's settings beside them.

Worked examples: of a ScaledObject and an HPA that both name Deployment/chat, the later one has a finding. `threshold:
"40"` beside `activationThreshold: "50"` at a minimum of 0: with 45 requests the HPA wants two replicas, and KEDA
removes both.
"""

from __future__ import annotations

from collections.abc import Iterator

from exporter.kubernetes.decode_autoscaling import PAUSED
from scaler.config import rules
from scaler.config.errors import Finding
from scaler.config.trigger import ANNOTATION
from scaler.model import METRIC

from ..autoscalers import Autoscaler, LintContext, shown_count
from ..objects import LintObject, LintWorkload
from ..promql import parse_query

_TARGET = ("spec", "scaleTargetRef")
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})  # Go's strconv.ParseBool; all else is true
_ADOPTS = "scaledobject.keda.sh/transfer-hpa-ownership"
_SLOWEST_POLL_S = 60
# Metrics of waiting requests only. Triton's `nv_inference_pending_request_count` waits for its scheduler.
_WAITING = frozenset({
    "vllm:num_requests_waiting", "sglang:num_queue_reqs", "tgi_queue_size", "te_queue_size", "num_requests_waiting",
    "trtllm_num_requests_waiting", "nv_inference_pending_request_count", "llamacpp:requests_deferred",
    "lmdeploy:num_requests_waiting", "llm_d_epp_flow_control_queue_size",
    "inference_extension_flow_control_queue_size", "inference_pool_average_queue_size",
})  # fmt: skip


def two_writers(scaler: Autoscaler, context: LintContext) -> Iterator[Finding]:
    """A finding of the later of two. A paused ScaledObject has no HPA and writes nothing."""
    if _is_paused(scaler):
        return
    for before in context.by_target[scaler.target_key]:
        if before is scaler:
            return
        if _is_paused(before):
            continue
        if before.obj.key != scaler.obj.key and not _made_by(before, scaler):
            kind, name = scaler.target
            where = "" if context.live else f" ({before.obj.file})"
            yield Finding(_TARGET, f"{kind}/{name} is scaled by {before.obj} too{where}", rule=rules.TWO_WRITERS)
            return


def _is_paused(scaler: Autoscaler) -> bool:
    """Paused and without paused-replicas, which would be written."""
    annotations = scaler.value.below("metadata", "annotations") if scaler.is_keda else {}
    paused = annotations.get(PAUSED)
    return paused is not None and paused.text not in _FALSE and f"{PAUSED}-replicas" not in annotations


def _made_by(one: Autoscaler, other: Autoscaler) -> bool:
    """Whether one is the HPA that KEDA creates or adopts for the other."""
    if one.is_made_by_keda or other.is_made_by_keda:
        return True
    if one.is_keda == other.is_keda:
        return False
    scaled, hpa = (one, other) if one.is_keda else (other, one)
    hpa_name = scaled.value.read("spec", "advanced", "horizontalPodAutoscalerConfig", "name")
    adopted = scaled.value.read("metadata", "annotations", _ADOPTS) == "true"
    return hpa.obj.name in {f"keda-hpa-{scaled.obj.name}", hpa_name} or adopted


def replicas_in_manifest(target: LintWorkload, context: LintContext) -> Iterator[Finding]:
    """Only for files: in a cluster the autoscaler writes this field."""
    scalers = context.scalers_of(target)
    if context.live or not scalers or target.obj.value.at("spec", "replicas") is None:
        return
    message = f"is reset each time this is applied: {scalers[0].obj} scales it"
    yield Finding(("spec", "replicas"), message, rule=rules.REPLICAS_IN_MANIFEST)


def max_missing(scaler: Autoscaler, context: LintContext) -> Iterator[Finding]:
    """Only for KEDA: an HPA must have maxReplicas."""
    at = ("spec", "maxReplicaCount")
    if scaler.is_keda and scaler.value.at(*at) is None and (scaler.is_ours or context.is_on_gpus(scaler)):
        yield Finding(at, f"is {scaler.highest} by default: set it to what the GPUs allow", rule=rules.MAX_MISSING)


def min_above_max(scaler: Autoscaler, _context: LintContext) -> Iterator[Finding]:
    """Not for Tidegate's triggers: `triggers` checks those."""
    if scaler.is_keda and scaler.is_ours:
        return
    # For KEDA minReplicaCount: idleReplicaCount is below it.
    written = scaler.value.count("spec", "minReplicaCount") if scaler.is_keda else None
    lowest = scaler.lowest if written is None else written
    if scaler.highest is not None and lowest > scaler.highest:
        most = "maxReplicaCount" if scaler.is_keda else "maxReplicas"
        got = shown_count(scaler.value, *scaler.count_loc) or str(lowest)
        yield Finding(scaler.count_loc, f"must be at most {most} ({scaler.highest})", got, rules.MIN_ABOVE_MAX)


def zero_without_external(scaler: Autoscaler, _context: LintContext) -> Iterator[Finding]:
    if scaler.is_keda or scaler.lowest > 0 or any(one.kind in {"External", "Object"} for one in scaler.metrics):
        return
    message = "0 needs a metric of type External or Object: the others are measured on pods, and there are none"
    yield Finding(scaler.count_loc, message, rule=rules.ZERO_WITHOUT_EXTERNAL)


def formula_replaces(scaler: Autoscaler, _context: LintContext) -> Iterator[Finding]:
    at = ("spec", "advanced", "scalingModifiers", "formula")
    if scaler.is_keda and scaler.is_ours and scaler.value.read(*at):
        message = f"replaces {METRIC}: the HPA gets the formula's value, against scalingModifiers.target"
        yield Finding(at, message, rule=rules.FORMULA_REPLACES)


def restarted_by_vpa(obj: LintObject, context: LintContext) -> Iterator[Finding]:
    """obj: a VerticalPodAutoscaler. Auto is the default and evicts; InPlaceOrRecreate avoids it and is no finding."""
    kind, name = obj.value.read("spec", "targetRef", "kind"), obj.value.read("spec", "targetRef", "name")
    target = context.workloads.get((kind, obj.namespace, name))
    at = ("spec", "updatePolicy", "updateMode")
    mode = obj.value.read(*at) or "Auto"
    if target is not None and target.on_gpus and mode in {"Auto", "Recreate"}:
        message = f"{mode} evicts pods of {target.obj}, which load their model again each time"
        yield Finding(at, message, rule=rules.RESTARTED_BY_VPA)


def drain_blocked(obj: LintObject, context: LintContext) -> Iterator[Finding]:
    """obj: a PodDisruptionBudget. Its number of pods is known for one workload with a pod per replica."""
    least, most = obj.value.at("spec", "minAvailable"), obj.value.at("spec", "maxUnavailable")
    choice = {key: one.text or "" for key, one in obj.value.below("spec", "selector", "matchLabels").items()}
    if not choice or obj.value.items("spec", "selector", "matchExpressions"):
        return
    chosen = [
        target
        for target in context.workloads.values()
        if target.obj.namespace == obj.namespace and choice.items() <= target.labels.items()
    ]
    for target in chosen:
        scalers = context.scalers_of(target)
        if not scalers:
            continue
        counted = len(chosen) == 1 and target.obj.kind != "LeaderWorkerSet"
        if not (target.on_gpus or any(one.is_ours for one in scalers)):
            continue
        lowest = max(1, min(one.lowest for one in scalers))
        if most is not None and most.text in {"0", "0%"}:
            yield Finding(
                ("spec", "maxUnavailable"),
                f"never allows the eviction of a pod of {target.obj}",
                rule=rules.DRAIN_BLOCKED,
            )
        elif least is not None and least.text is not None and _blocks(least.text, lowest if counted else None):
            message = f"lets no pod of {target.obj} go while it is at its minimum ({lowest}): no node of its is drained"
            yield Finding(("spec", "minAvailable"), message, least.text, rules.DRAIN_BLOCKED)


def _blocks(least: str, lowest: int | None) -> bool:
    """lowest: pods at the minimum; None if unknown."""
    return least == "100%" or (lowest is not None and least.isdecimal() and int(least) >= lowest)


def nothing_wakes(scaler: Autoscaler, context: LintContext) -> Iterator[Finding]:
    """For an HPA with minimum 0: the annotations of its target name no gateway."""
    target = context.workload_of(scaler)
    if scaler.is_keda or not scaler.is_ours or scaler.lowest > 0 or target is None:
        return
    keys = {key for key in target.obj.value.below("metadata", "annotations") if key.startswith(ANNOTATION)}
    if keys and f"{ANNOTATION}gateway" not in keys and f"{ANNOTATION}group" not in keys:
        message = f"0, and {target.obj} has no {ANNOTATION}gateway: nothing can wake it, so one replica is kept"
        yield Finding(scaler.count_loc, message, rule=rules.NO_WAKE_SOURCE)


def zero_while_loading(scaler: Autoscaler, context: LintContext) -> Iterator[Finding]:
    """Not for Tidegate's triggers, which are active until idleness is proven."""
    at = ("spec", "initialCooldownPeriod")
    is_other = scaler.is_keda and not scaler.is_ours and scaler.metrics
    if is_other and scaler.lowest == 0 and scaler.value.at(*at) is None and context.is_on_gpus(scaler):
        yield Finding(at, "is 0 by default: a new one goes to zero at the first poll", rule=rules.ZERO_WHILE_LOADING)


def idle_replica_count(scaler: Autoscaler, _context: LintContext) -> Iterator[Finding]:
    """Not for Tidegate's triggers: `triggers` checks those."""
    at = ("spec", "idleReplicaCount")
    count = scaler.value.count(*at) if scaler.is_keda and not scaler.is_ours else None
    if count:
        yield Finding(at, "must be 0: KEDA supports no other", str(count), rules.IDLE_REPLICA_COUNT)


def activation_above_target(scaler: Autoscaler, _context: LintContext) -> Iterator[Finding]:
    """Only for a single trigger: another one may keep it active."""
    for one in scaler.metrics if scaler.is_keda and scaler.lowest == 0 and len(scaler.metrics) == 1 else ():
        if one.activation is not None and one.target is not None and one.activation > one.target:
            message = (
                f"activates above {one.activation:g} and scales at {one.target:g}: between them the HPA wants more "
                "than one replica, and KEDA scales to zero"
            )
            yield Finding(
                (*one.at, "metadata", _activation(scaler, one.at)), message, rule=rules.ACTIVATION_ABOVE_TARGET
            )


def _activation(scaler: Autoscaler, at: tuple[int | str, ...]) -> str:
    return next(key for key in _metadata(scaler, at) if key.startswith("activation"))


def _metadata(scaler: Autoscaler, at: tuple[int | str, ...]) -> list[str]:
    found = scaler.value.at(*at, "metadata")
    return [] if found is None else list(found.entries())


def polled_seldom(scaler: Autoscaler, _context: LintContext) -> Iterator[Finding]:
    at = ("spec", "pollingInterval")
    interval_s = scaler.value.count(*at) if scaler.is_keda and scaler.is_ours and scaler.lowest == 0 else None
    if interval_s is not None and interval_s > _SLOWEST_POLL_S:
        yield Finding(
            at, f"KEDA scales to zero only after a poll: up to {interval_s} s later", rule=rules.POLLED_RARELY
        )


def queue_alone(scaler: Autoscaler, _context: LintContext) -> Iterator[Finding]:
    """Every trigger is a query of waiting requests only."""
    if not scaler.is_keda or scaler.lowest > 0 or not scaler.metrics:
        return
    names = [parse_query(one.text).names for one in scaler.metrics]
    if all(one.kind == "prometheus" and one.text for one in scaler.metrics) and all(
        each and each <= _WAITING for each in names
    ):
        message = "shows only waiting requests: if all requests run it is 0, and KEDA scales to zero under load"
        yield Finding(scaler.metrics[0].loc, message, rule=rules.QUEUE_ALONE)
