"""The objects of one run -> what every rule says of them, less what is silenced. Pure.

Worked example: of a ScaledObject whose annotation silences TG004 with a reason, its `fallback` is not spoken of.

Which function looks at which objects. A table: the order is that of the rules, and no function knows of another.

Worked example: `remarks(thing, seen)` of a ScaledObject asks each of `OF_AUTOSCALERS`.

What somebody has decided to live with: `tidegate.dev/check-ignore` on an object, and `--ignore` for a run. Pure.

A reason is required, since nobody remembers one; a rule that does not exist silences nothing and is an error. What has
no rule cannot be silenced: Tidegate would refuse it.

Worked example: `tidegate.dev/check-ignore: "TG061 because the gateway drains; TG063 because it loads in 1 s"` silences
two rules for that object, and `"TG061"` alone is the error TG092.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from scaler.config.model import Config
from scaler.config.problem import Loc, Problem
from scaler.config.remark import Remark, problem
from scaler.config.rules import IGNORED_WITHOUT_REASON, RULES
from scaler.config.trigger import ANNOTATION, CHECK_IGNORE

from .autoscalers import LintContext, said, see
from .checks import hpa, pods, queries, replicas
from .objects import PROMETHEUS, LintWorkload, Thing, workload
from .triggers import remarks_on


class Linted(NamedTuple):
    """problems: in the order of the objects. passed_over: objects that no rule reads."""

    problems: list[Problem]
    passed_over: int


def linted(
    things: Sequence[Thing], config: Config | None, now: float | None, ignored: frozenset[str], *, live: bool = False
) -> Linted:
    """config: what they will meet; None: not known, defaults are assumed. now: POSIX seconds; None: what is over is not
    looked for. ignored: ids of rules that nobody wants to hear of.
    """
    seen = see(things, config, live=live)
    problems: list[Problem] = []
    passed_over = 0
    for thing in things:
        words = remarks_on(thing.value, config, now)
        passed_over += words is None and not thing.kind
        silent, wrong = silenced(thing)
        said = (*(words or ()), *remarks(thing, seen), *wrong)
        problems += [
            problem(thing.value, thing.file, one)
            for one in said
            if one.rule is None or one.rule.id not in silent | ignored
        ]
    return Linted(problems, passed_over)


OF_AUTOSCALERS = (
    replicas.nothing_wakes,
    replicas.zero_while_loading,
    replicas.idle_replica_count,
    replicas.activation_above_target,
    replicas.polled_seldom,
    replicas.queue_alone,
    replicas.two_writers,
    replicas.max_missing,
    replicas.min_above_max,
    replicas.zero_without_external,
    replicas.formula_replaces,
    hpa.smoothed_twice,
    hpa.default_window,
    hpa.lost_in_tolerance,
    hpa.direction_disabled,
    hpa.metric_type,
    hpa.cached_metrics,
    hpa.plain_text,
    queries.gpu_util_on_mig,
    queries.gpu_util_as_load,
    queries.memory_as_load,
    queries.ratio_against_percent,
    queries.empty_is_zero,
    queries.long_window,
    queries.renamed_metric,
    queries.exporters_labels,
    pods.target_above_limit,
)
# In a live cluster.
OF_CONDITIONS = (
    hpa.metric_unread,
    hpa.target_missing,
    hpa.not_ready,
    hpa.at_maximum,
    hpa.on_fallback,
)
OF_WORKLOADS = (
    replicas.replicas_in_manifest,
    pods.target_above_limit_of_words,
)
# Of what works on GPUs or asks Tidegate.
OF_SERVERS = (
    pods.grace_too_short,
    pods.no_prestop,
    pods.no_drain,
    pods.no_readiness,
    pods.killed_while_loading,
    pods.metrics_off,
)
OF_OTHERS: Mapping[str, Callable[[Thing, LintContext], Iterator[Remark]]] = {
    "PodDisruptionBudget": replicas.drain_blocked,
    "VerticalPodAutoscaler": replicas.restarted_by_vpa,
    "ServiceMonitor": queries.scraped_seldom,
    "PodMonitor": queries.scraped_seldom,
    PROMETHEUS: queries.scraped_seldom,
}


def remarks(thing: Thing, seen: LintContext) -> Iterator[Remark]:
    """What the rules say of one object among all others."""
    scaler = seen.autoscalers.get(thing)
    if scaler is not None:
        for of_autoscaler in (*(() if scaler.is_kedas else OF_AUTOSCALERS), *(OF_CONDITIONS if seen.live else ())):
            yield from of_autoscaler(scaler, seen)
    target = workload(thing)
    if target is not None:
        for of_workload in (*OF_WORKLOADS, *(OF_SERVERS if _serves(target, seen) else ())):
            yield from of_workload(target, seen)
    if thing.kind in OF_OTHERS:
        yield from OF_OTHERS[thing.kind](thing, seen)


def _serves(target: LintWorkload, seen: LintContext) -> bool:
    scalers = seen.scalers_of(target)
    return bool(scalers) and (target.on_gpus or any(one.ours for one in scalers))


_AT: Loc = ("metadata", "annotations", ANNOTATION + CHECK_IGNORE)
_ONE = re.compile(r"(?P<ids>\w+(?:\s*,\s*\w+)*)(?:\s+because(?:\s+(?P<why>\S.*))?)?", re.DOTALL)


class UnknownRule(ValueError):  # noqa: N818  it is what was asked for
    """`args[0]` is the id."""


def known(ids: Sequence[str]) -> frozenset[str]:
    """The ids of `--ignore`, as they are; several may stand in one, with commas. Raises UnknownRule."""
    given = [one.strip() for each in ids for one in each.split(",")]
    for one in given:
        if one not in RULES:
            raise UnknownRule(one)
    return frozenset(given)


def silenced(thing: Thing) -> tuple[frozenset[str], list[Remark]]:
    """The rules that an object's annotation silences, and what is wrong with the annotation."""
    annotation = thing.value.at(*_AT)
    if annotation is None:
        return frozenset(), []
    found: set[str] = set()
    wrong = list(_read(annotation.text or "", found))
    return frozenset(found), wrong


def _read(text: str, found: set[str]) -> Iterator[Remark]:
    for part in (one.strip() for one in text.split(";")):
        match = _ONE.fullmatch(part)
        if match is None:
            message = 'must be rules and a reason, such as "TG061 because the gateway drains"'
            yield said(IGNORED_WITHOUT_REASON, _AT, message, text)
            continue
        for name in (one.strip() for one in match["ids"].split(",")):
            if name not in RULES:
                yield said(IGNORED_WITHOUT_REASON, _AT, f"{name} is no rule: `tidegate check --rules` lists them")
            elif match["why"] is None:
                yield said(IGNORED_WITHOUT_REASON, _AT, f'{name} has no reason: write "{name} because ..."')
            else:
                found.add(name)
