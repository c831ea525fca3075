"""Files, configurations and manifests among each other -> everything that is to be said of them.

Manifests are checked against the configuration they will meet, if one is among the files, and against each other: an
autoscaler of one file and the Deployment of another are seen together. What only the machine that `tidegate export` is
to run on knows, its environment, is not asked of its configuration.

Worked example: `check_files(["config.yaml", "scaledobject.yaml"])` says of a trigger with `gateway: epp` whether `epp`
is a shared gateway of config.yaml; without config.yaml it is taken for a Service.

A live cluster -> everything that is to be said of the objects in it. It lists, and does nothing else.

The same rules as for files, and those about what the controllers themselves say. A kind that RBAC refuses is passed
over and said; one that the cluster does not have is passed over. An API server looks at rights first: to whom they do
not name a kind it says 403 of one that it does not have.

Worked example: `await check_cluster(client, "ai", now, frozenset())` lists all kinds of `CHECKED` in namespace `ai`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from exporter.kubernetes.protocol import Api, Document, Forbidden, Gone, NotFound
from exporter.kubernetes.resources import CHECKED, Resource
from exporter.model import WorkloadKey
from scaler.config import Config, ConfigErrors, parse
from scaler.config.agent import is_export, parse_export
from scaler.config.errors import Problem, dotted
from scaler.config.loader import LARGEST_BYTES as LARGEST_CONFIG
from scaler.config.loader import body_of, decode
from scaler.config.workload import woken_by
from scaler.config.yaml import documents
from scaler.policy.overrides import Brake

from .autoscalers import LintContext, see
from .checks import hpa, pods, queries, replicas
from .findings import Remark, problem, silenced
from .objects import PROMETHEUS, LintWorkload, Thing, is_prometheus, things, value_of, workload
from .triggers import LARGEST_BYTES, is_manifest, remarks_on

STDIN = "-"


class LintReport(NamedTuple):
    """problems: by file, in the order given. passed_over: objects that no rule reads.

    wakers: of each workload of the configurations, what would wake it, in words.
    orders: by workload, what brakes and schedules of the configurations order now and next, in words.
    """

    problems: list[Problem]
    passed_over: int
    wakers: Mapping[WorkloadKey, str]
    orders: Mapping[str, list[str]]


def check_files(
    files: Sequence[str], now: float | None = None, ignored: frozenset[str] = frozenset(), stdin: bytes = b""
) -> LintReport:
    """now: POSIX seconds; None: what is over, and what holds now, is not said. ignored: ids of rules. stdin: what
    the file `-` holds.
    """
    said: dict[str, list[Problem]] = {}
    manifests: dict[str, str] = {}
    configs: list[Config] = []
    for file in files:
        try:
            body = stdin if file == STDIN else body_of(file, LARGEST_BYTES)
            text = decode(body, file, LARGEST_BYTES)
            if is_manifest(text) or is_prometheus(text):
                manifests[file] = text
            else:
                said[file] = _configuration(decode(body, file, LARGEST_CONFIG), file, configs, now)
        except ConfigErrors as errors:
            said[file] = list(errors.problems)
    found: list[Thing] = []
    for file, text in manifests.items():
        roots, troubles = documents(text)
        said[file] = [Problem(file, *trouble.mark, dotted(trouble.loc), trouble.message) for trouble in troubles]
        found += [thing for root in roots for thing in things(root, file)]
    run = linted(found, configs[0] if len(configs) == 1 else None, now, ignored)
    for one in run.problems:
        said[one.file].append(one)
    for problems in said.values():
        problems.sort(key=lambda problem: (problem.line or 0, problem.column or 0, problem.key))
    wakers = {workload.key: woken_by(workload) for config in configs for workload in config.workloads}
    orders = {} if now is None else {name: words for one in configs for name, words in orders_shown(one, now).items()}
    kept = [problem for file in files for problem in said[file] if problem.rule not in ignored]
    return LintReport(kept, run.passed_over, wakers, orders)


def _configuration(text: str, file: str, configs: list[Config], now: float | None) -> list[Problem]:
    """Its warnings; raises ConfigErrors. What it says is one of `configs` then."""
    if is_export(text):
        return parse_export(text, file, None)[1]
    config, warnings = parse(text, file, now)
    configs.append(config)
    return warnings


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


EVERYBODY = "all workloads"


def orders_shown(config: Config, now: float) -> dict[str, list[str]]:
    """By workload, those without orders left out; what is ordered of all of them first. now: POSIX seconds."""
    lines = {EVERYBODY: list(_of_brake(config.brake, now))}
    for one in config.workloads:
        lines[str(one.key)] = [
            *_of_brake(one.brake, now),
            *(schedule.order.said_at(now) for schedule in one.schedules),
        ]
    return {name: said for name, said in lines.items() if said}


def _of_brake(brake: Brake | None, now: float) -> Iterator[str]:
    if brake is not None:
        yield f"{'now' if brake.holds(now) else 'over'}: {brake.typed()}"


_ROUNDS = 3  # a list that is forgotten half-way (410) is begun again so often


class Lists(Api, Protocol):
    async def groups(self) -> frozenset[str]:
        """Each `GROUP/VERSION` that the cluster has. Raises ApiFailure."""


class Live(NamedTuple):
    """problems: by object; `file` is the object's kind and name, and there are no lines. seen: how many objects.
    refused: what was not read, and why. blind: nothing was read at all.
    """

    problems: list[Problem]
    seen: int
    refused: list[str]
    blind: bool


async def check_cluster(api: Lists, namespace: str | None, now: float | None, ignored: frozenset[str]) -> Live:
    """namespace: None for all. Raises ApiFailure where the API does not answer."""
    found: list[Thing] = []
    refused: dict[Resource, str] = {}
    absent = 0
    for resource in CHECKED:
        try:
            found += [thing for one in await _all(api, resource, namespace) for thing in _things(one, resource)]
        except NotFound:
            absent += 1
        except Forbidden as failure:
            refused[resource] = failure.detail
    served = await api.groups() if any(resource.optional for resource in refused) else frozenset[str]()
    run = linted(found, None, now, ignored, live=True)
    return Live(
        [replace(one, line=None, column=None) for one in run.problems],
        len(found),
        [why for resource, why in refused.items() if not resource.optional or resource.version in served],
        blind=len(refused) + absent == len(CHECKED),
    )


async def _all(api: Api, resource: Resource, namespace: str | None) -> list[Document]:
    left = _ROUNDS
    while True:
        left -= 1
        try:
            return [item async for item in _pages(api, resource, namespace)]
        except Gone:
            if not left:
                raise


async def _pages(api: Api, resource: Resource, namespace: str | None) -> AsyncIterator[Document]:
    page = await api.page(resource, namespace, "")
    while True:
        for item in page.items:
            yield item
        if not page.after:
            return
        page = await api.page(resource, namespace, page.after)


def _things(document: Document, resource: Resource) -> list[Thing]:
    """In a list, an object does not say of what kind it is."""
    version = resource.path.removeprefix("/apis/").removeprefix("/api/")
    whole = {**document, "apiVersion": version, "kind": resource.kind}
    return [replace(one, file=str(one)) for one in things(value_of(whole), "")]
