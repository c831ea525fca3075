"""How the pods start, what they carry and how they end: TG060 to TG066. Pure.

Only what an autoscaler of the same run scales is looked at, and only where it works on GPUs or asks Tidegate: what is
never scaled in cuts nobody's answer off.

Worked example: vLLM with `--max-num-seqs=32` under `objectives.work: "48"`: 16 requests of a full replica wait inside
it before the next replica is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from exporter.catalog import KINDS
from scaler.config import rules
from scaler.config.errors import Loc
from scaler.config.trigger import ANNOTATION

from ..autoscalers import Autoscaler, LintContext, number
from ..findings import Remark, said
from ..objects import GENERATIVE, Container, LintWorkload
from ..promql import query
from ..triggers import is_ours

_GRACE_S = 30.0  # Kubernetes' default
# An answer of 1,000 tokens at 30 a second takes 33 s: what is left for it must be more than the default.
_LEFT_S = 30.0
# Models of 7 to 32 billion parameters were serving 92 to 130 s after their pods were made (llm-d, Hearth).
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


def grace_too_short(target: LintWorkload, _seen: LintContext) -> Iterator[Remark]:
    """Only engines whose answers take long."""
    serving = [one for one in target.containers if one.engine in GENERATIVE]
    if not serving:
        return
    written = target.pod.count("terminationGracePeriodSeconds")
    grace = _GRACE_S if written is None else float(written)
    pause = max(one.pause_s or 0.0 for one in serving)
    drain = max((float(given[0]) for one in serving if (given := one.amount("--shutdown-timeout"))), default=0.0)
    at, got = (*target.at, "terminationGracePeriodSeconds"), None if written is None else str(written)
    left_out = "is 30 where it is left out: " if written is None else ""
    if grace < pause + drain:
        message = f"{left_out}killed before preStop ({pause:g} s) and --shutdown-timeout ({drain:g} s) are over"
        yield said(rules.GRACE_TOO_SHORT, at, message, got)
    elif grace - pause <= _LEFT_S:
        message = f"{left_out}an answer that takes more than {max(0.0, grace - pause):g} s after SIGTERM is cut off"
        yield said(rules.GRACE_TOO_SHORT, at, message, got)


def no_prestop(target: LintWorkload, _seen: LintContext) -> Iterator[Remark]:
    for one in target.containers:
        if one.engine in GENERATIVE and one.pause_s is None:
            message = "is not given: SIGTERM comes at once, while gateways still send requests"
            yield said(rules.NO_PRESTOP, (*one.at, "lifecycle", "preStop"), message)


def no_drain(target: LintWorkload, _seen: LintContext) -> Iterator[Remark]:
    """Only of releases of vLLM that have the switch."""
    for one in target.containers:
        asked = one.option("--shutdown-timeout") is not None or not one.shows_options
        if one.engine == "vllm" and _drains(one.value.read("image")) and not asked:
            pods = "args" if one.value.at("args") is not None else "command"
            message = "has no --shutdown-timeout: at SIGTERM vLLM aborts the requests in flight"
            yield said(rules.NO_DRAIN, (*one.at, pods), message)


def _drains(image: str) -> bool:
    tag = re.search(r":v?([0-9]+)\.([0-9]+)", image.partition("@")[0])
    return tag is not None and (int(tag[1]), int(tag[2])) >= _DRAINS_SINCE


def no_readiness(target: LintWorkload, _seen: LintContext) -> Iterator[Remark]:
    """Of what serves: a worker without a port gets no requests."""
    for one in target.serving:
        serves = one.engine is not None or one.value.items("ports")
        if serves and one.value.at("readinessProbe") is None:
            message = "is not given: it counts as ready, as capacity and as idle while its model still loads"
            yield said(rules.NO_READINESS, (*one.at, "readinessProbe"), message)


def killed_while_loading(target: LintWorkload, _seen: LintContext) -> Iterator[Remark]:
    for one in target.containers:
        probe = next((key for key in ("startupProbe", "livenessProbe") if one.value.at(key) is not None), None)
        if one.engine not in GENERATIVE or probe is None:
            continue
        delay, period, failures = (
            one.value.count(probe, key) for key in ("initialDelaySeconds", "periodSeconds", "failureThreshold")
        )
        budget = (delay or 0) + (period or _PERIOD_S) * (failures or _FAILURES)
        if budget < _LONGEST_START_S:
            message = (
                f"gives up {budget} s after the start, and a model takes minutes to load: it is restarted for ever"
            )
            yield said(rules.KILLED_WHILE_LOADING, (*one.at, probe), message)


def target_above_limit(scaler: Autoscaler, seen: LintContext) -> Iterator[Remark]:
    target = seen.workload_of(scaler)
    for one in target.containers if target is not None else ():
        limit = _limit(one)
        if limit is None:
            continue
        for index, trigger in enumerate(scaler.value.items("spec", "triggers") if scaler.is_keda else ()):
            at = ("spec", "triggers", index, "metadata")
            if is_ours(trigger):
                written = trigger.at("metadata", "objectives.work")
                yield from _work(one, limit, None if written is None else written.text, (*at, "objectives.work"))
        for asked in scaler.asked:
            its = query(asked.text)
            names = its.names if not its.has_arithmetic else frozenset[str]()
            if names and names <= _RUNNING and asked.target is not None and asked.target >= limit:
                message = (
                    f"at most {limit} run in a replica at once: a target of {asked.target:g} never asks for a second"
                )
                yield said(rules.TARGET_ABOVE_LIMIT, asked.loc, message)


def target_above_limit_of_words(target: LintWorkload, _seen: LintContext) -> Iterator[Remark]:
    """The same, for annotations."""
    annotations = target.thing.value.below("metadata", "annotations")
    if f"{ANNOTATION}engine" not in annotations:
        return
    key = f"{ANNOTATION}objectives.work"
    written = annotations.get(key)
    for one in target.containers:
        if (limit := _limit(one)) is not None:
            yield from _work(one, limit, None if written is None else written.text, ("metadata", "annotations", key))


def _work(container: Container, limit: int, written: str | None, at: Loc) -> Iterator[Remark]:
    work = number(written) if written is not None else KINDS[container.engine or ""].work
    if work is None or work <= limit:
        return
    left_out = "" if written is not None else f"is {work:g} where it is left out: "
    if container.engine == "tgi":
        what = f"the server refuses more than {limit} at once: {work:g} are never seen, and no replica is added"
    else:
        what = f"a replica runs at most {limit} at once: {work - limit:g} more wait in it before another is asked for"
    yield said(rules.TARGET_ABOVE_LIMIT, at, left_out + what)


def _limit(container: Container) -> int | None:
    """How many requests the engine runs at once; None where it is not written."""
    if container.engine not in _LIMITS:
        return None
    most = container.amount(*_LIMITS[container.engine])
    ranks = container.amount(*_RANKS.get(container.engine, ()))
    return None if most is None else most[0] * (ranks[0] if ranks is not None else 1)


def metrics_off(target: LintWorkload, seen: LintContext) -> Iterator[Remark]:
    """Where an autoscaler hangs on the engine's page: by a trigger or annotations of ours, or by a query."""
    for one in target.containers:
        engine = one.engine
        if engine is None or not one.words or not _is_asked(engine, target, seen):
            continue
        at = (*one.at, "args" if one.value.at("args") is not None else "command")
        if engine in _SWITCHES and one.shows_options and not any(one.option(each) for each in _SWITCHES[engine]):
            named = {env.read("name") for env in one.value.items("env")}
            by_env = _SWITCH_BY_ENV.get(engine)
            if by_env is None or (by_env not in named and not one.value.items("envFrom")):
                yield said(rules.METRICS_OFF, at, f"has no {_SWITCHES[engine][0]}: its page has no queue")
        off = one.option("--disable-log-stats") if engine == "vllm" else None
        if off is not None:
            yield said(rules.METRICS_OFF, off[1], "--disable-log-stats takes the queue off the page")


def _is_asked(engine: str, target: LintWorkload, seen: LintContext) -> bool:
    words = target.thing.value.below("metadata", "annotations")
    if words.get(f"{ANNOTATION}engine") is not None:
        return True
    prefix = f"{engine}:"
    for scaler in seen.scalers_of(target):
        triggers = scaler.value.items("spec", "triggers") if scaler.is_keda else []
        if any(is_ours(one) and one.read("metadata", "engine") == engine for one in triggers):
            return True
        if any(name.startswith(prefix) for one in scaler.asked for name in query(one.text).names):
            return True
    return False
