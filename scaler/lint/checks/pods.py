"""Checks how pods start, serve and stop: TG060 to TG066. Pure.

Only for objects with annotations of Tidegate, and for scale targets of the same run that use GPUs or Tidegate: without
scale-down no request is cut off.

Worked example: vLLM with `--max-num-seqs=32` under `objectives.work: "48"`: 16 requests of a full replica wait inside
it before the next replica is requested.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from exporter.catalog import KINDS
from scaler.config import rules
from scaler.config.errors import Finding, Loc
from scaler.config.trigger import ANNOTATION

from ..autoscalers import Autoscaler, LintContext, number
from ..objects import GENERATIVE, Container, LintWorkload
from ..promql import parse_query
from ..triggers import is_ours

_GRACE_S = 30.0  # Kubernetes' default
# A response of 1,000 tokens at 30 per second takes 33 s: more than the default must remain for it.
_SHORTEST_DRAIN_S = 30.0
# Models of 7 to 32 billion parameters serve 92 to 130 s after the creation of their pods (llm-d, Hearth).
_LONGEST_START_S = 120
_PERIOD_S, _FAILURES = 10, 3  # of a probe, Kubernetes' defaults
_DRAINS_SINCE = (0, 18)  # the first vLLM with --shutdown-timeout: vllm-project/vllm#34730
_LIMITS = {
    "vllm": ("--max-num-seqs",),
    "sglang": ("--max-running-requests",),
    "tgi": ("--max-concurrent-requests",),
    "llamacpp": ("--parallel", "-np"),
}
_RANKS = {"vllm": ("--data-parallel-size", "-dp"), "sglang": ("--dp-size", "--data-parallel-size", "--dp")}
_RUNNING = frozenset({
    "vllm:num_requests_running", "sglang:num_running_reqs", "tgi_batch_current_size", "llamacpp:requests_processing",
    "num_requests_running",
})  # fmt: skip
_SWITCHES = {"sglang": ("--enable-metrics",), "llamacpp": ("--metrics",)}
_SWITCH_BY_ENV = {"llamacpp": "LLAMA_ARG_ENDPOINT_METRICS"}


def grace_too_short(target: LintWorkload, _context: LintContext) -> Iterator[Finding]:
    """Only for engines with long responses."""
    serving = [one for one in target.containers if one.engine in GENERATIVE]
    if not serving:
        return
    written = target.pod.count("terminationGracePeriodSeconds")
    grace = _GRACE_S if written is None else float(written)
    pause = max(one.pause_s or 0.0 for one in serving)
    drain = max((float(given[0]) for one in serving if (given := one.amount("--shutdown-timeout"))), default=0.0)
    at, got = (*target.at, "terminationGracePeriodSeconds"), None if written is None else str(written)
    default = "is 30 by default: " if written is None else ""
    if grace < pause + drain:
        message = f"{default}killed before preStop ({pause:g} s) and --shutdown-timeout ({drain:g} s) are over"
        yield Finding(at, message, got, rules.GRACE_TOO_SHORT)
    elif grace - pause <= _SHORTEST_DRAIN_S:
        message = f"{default}a response that takes more than {max(0.0, grace - pause):g} s after SIGTERM is cut off"
        yield Finding(at, message, got, rules.GRACE_TOO_SHORT)


def no_prestop(target: LintWorkload, _context: LintContext) -> Iterator[Finding]:
    for one in target.containers:
        if one.engine in GENERATIVE and one.pause_s is None:
            message = "is missing: SIGTERM comes at once, while gateways still send requests"
            yield Finding((*one.at, "lifecycle", "preStop"), message, rule=rules.NO_PRESTOP)


def no_drain(target: LintWorkload, _context: LintContext) -> Iterator[Finding]:
    """Only for releases of vLLM that have the option."""
    for one in target.containers:
        has_option = one.option("--shutdown-timeout") is not None or not one.shows_options
        if one.engine == "vllm" and _drains(one.value.read("image")) and not has_option:
            key = "args" if one.value.at("args") is not None else "command"
            message = "has no --shutdown-timeout: at SIGTERM vLLM aborts the requests in flight"
            yield Finding((*one.at, key), message, rule=rules.NO_DRAIN)


def _drains(image: str) -> bool:
    tag = re.search(r":v?([0-9]+)\.([0-9]+)", image.partition("@")[0])
    return tag is not None and (int(tag[1]), int(tag[2])) >= _DRAINS_SINCE


def no_readiness(target: LintWorkload, _context: LintContext) -> Iterator[Finding]:
    """Only for containers that serve: a worker without a port gets no requests."""
    for one in target.serving:
        serves = one.engine is not None or one.value.items("ports")
        if serves and one.value.at("readinessProbe") is None:
            message = "is missing: the pod counts as ready, as capacity and as idle while its model loads"
            yield Finding((*one.at, "readinessProbe"), message, rule=rules.NO_READINESS)


def killed_while_loading(target: LintWorkload, _context: LintContext) -> Iterator[Finding]:
    for one in target.containers:
        probe = next((key for key in ("startupProbe", "livenessProbe") if one.value.at(key) is not None), None)
        if one.engine not in GENERATIVE or probe is None:
            continue
        delay, period, failures = (
            one.value.count(probe, key) for key in ("initialDelaySeconds", "periodSeconds", "failureThreshold")
        )
        budget = (delay or 0) + (period or _PERIOD_S) * (failures or _FAILURES)
        if budget < _LONGEST_START_S:
            message = f"fails {budget} s after the start, and a model takes minutes to load: it restarts forever"
            yield Finding((*one.at, probe), message, rule=rules.KILLED_WHILE_LOADING)


def target_above_limit(scaler: Autoscaler, context: LintContext) -> Iterator[Finding]:
    target = context.workload_of(scaler)
    for one in target.containers if target is not None else ():
        limit = _limit(one)
        if limit is None:
            continue
        for index, trigger in enumerate(scaler.value.items("spec", "triggers") if scaler.is_keda else ()):
            at = ("spec", "triggers", index, "metadata")
            if is_ours(trigger):
                written = trigger.at("metadata", "objectives.work")
                yield from _work(one, limit, None if written is None else written.text, (*at, "objectives.work"))
        for metric in scaler.metrics:
            parsed = parse_query(metric.text)
            names = parsed.names if not parsed.has_arithmetic else frozenset[str]()
            if names and names <= _RUNNING and metric.target is not None and metric.target >= limit:
                message = (
                    f"a replica runs at most {limit} at once: a target of {metric.target:g} never adds a second one"
                )
                yield Finding(metric.loc, message, rule=rules.TARGET_ABOVE_LIMIT)


def annotated_target_above_limit(target: LintWorkload, _context: LintContext) -> Iterator[Finding]:
    """`target_above_limit` for annotations."""
    annotations = target.obj.value.below("metadata", "annotations")
    if f"{ANNOTATION}engine" not in annotations:
        return
    key = f"{ANNOTATION}objectives.work"
    written = annotations.get(key)
    for one in target.containers:
        if (limit := _limit(one)) is not None:
            yield from _work(one, limit, None if written is None else written.text, ("metadata", "annotations", key))


def _work(container: Container, limit: int, written: str | None, at: Loc) -> Iterator[Finding]:
    """Nothing if tokens or the time of a request size it: they need no number, and show an engine at its limit."""
    kind = KINDS[container.engine or ""]
    default_work = None if kind.sized_by_slo or kind.times_requests else kind.work
    work = default_work if written is None else number(written)
    if work is None or work <= limit:
        return
    default = "" if written is not None else f"is {work:g} by default: "
    if container.engine == "tgi":
        effect = f"the server rejects more than {limit} at once: {work:g} is never reached, and no replica is added"
    else:
        effect = f"a replica runs at most {limit} at once: {work - limit:g} more wait in it before another is added"
    yield Finding(at, default + effect, rule=rules.TARGET_ABOVE_LIMIT)


def _limit(container: Container) -> int | None:
    """Requests that the engine runs at once; None if not given."""
    if container.engine not in _LIMITS:
        return None
    most = container.amount(*_LIMITS[container.engine])
    ranks = container.amount(*_RANKS.get(container.engine, ()))
    return None if most is None else most[0] * (ranks[0] if ranks is not None else 1)


def metrics_off(target: LintWorkload, context: LintContext) -> Iterator[Finding]:
    """For workloads with an autoscaler that uses the engine's metrics."""
    for one in target.containers:
        engine = one.engine
        if engine is None or not one.arguments or not _uses_metrics(engine, target, context):
            continue
        at = (*one.at, "args" if one.value.at("args") is not None else "command")
        if engine in _SWITCHES and one.shows_options and not any(one.option(each) for each in _SWITCHES[engine]):
            named = {env.read("name") for env in one.value.items("env")}
            by_env = _SWITCH_BY_ENV.get(engine)
            if by_env is None or (by_env not in named and not one.value.items("envFrom")):
                yield Finding(at, f"has no {_SWITCHES[engine][0]}: its metrics have no queue", rule=rules.METRICS_OFF)
        off = one.option("--disable-log-stats") if engine == "vllm" else None
        if off is not None:
            yield Finding(off[1], "--disable-log-stats removes the queue from the metrics", rule=rules.METRICS_OFF)


def _uses_metrics(engine: str, target: LintWorkload, context: LintContext) -> bool:
    """By a trigger or annotations of Tidegate, or by a query."""
    annotations = target.obj.value.below("metadata", "annotations")
    if annotations.get(f"{ANNOTATION}engine") is not None:
        return True
    prefix = f"{engine}:"
    for scaler in context.scalers_of(target):
        triggers = scaler.value.items("spec", "triggers") if scaler.is_keda else []
        if any(is_ours(one) and one.read("metadata", "engine") == engine for one in triggers):
            return True
        if any(name.startswith(prefix) for one in scaler.metrics for name in parse_query(one.text).names):
            return True
    return False
