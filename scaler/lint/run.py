"""Lints files or a live cluster: configurations, manifests, and all objects of one run together.

Manifests are checked against the configuration among the files, if there is exactly one, and against each other: an
autoscaler of one file and the Deployment of another belong together. The environment that `tidegate export` needs is
not checked, because only the machine that runs it has it. A cluster is only listed.

Worked example: `check_files(["config.yaml", "scaledobject.yaml"])` finds whether `gateway: epp` of a trigger is a
shared gateway of config.yaml; without config.yaml it is taken for a Service.
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
from scaler.config.errors import Finding, Problem, dotted
from scaler.config.loader import LARGEST_BYTES as LARGEST_CONFIG_BYTES
from scaler.config.loader import body_of, decode
from scaler.config.workload import woken_by
from scaler.config.yaml import documents
from scaler.policy.overrides import Brake

from .autoscalers import LintContext, build_context
from .checks import hpa, keys, pods, queries, replicas
from .findings import locate, read_silenced
from .objects import PROMETHEUS, LintObject, LintWorkload, is_prometheus, objects_in, value_of, workload_of
from .queues import QueueReader, shared_queues
from .triggers import LARGEST_BYTES, TriggerReport, check_triggers, is_manifest

STDIN = "-"
ALL_WORKLOADS = "all workloads"
_LIST_ATTEMPTS = 3  # a list that expires between its pages (410) starts again

AUTOSCALER_CHECKS = (
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
# Only in a live cluster: in a file, a status is out of date.
CONDITION_CHECKS = (hpa.metric_unread, hpa.target_missing, hpa.not_ready, hpa.at_maximum, hpa.on_fallback)
WORKLOAD_CHECKS = (replicas.replicas_in_manifest, pods.annotated_target_above_limit)
# Scale targets that use GPUs or Tidegate.
SERVER_CHECKS = (
    pods.grace_too_short,
    pods.no_prestop,
    pods.no_drain,
    pods.no_readiness,
    pods.killed_while_loading,
    pods.metrics_off,
)
CHECKS_BY_KIND: Mapping[str, Callable[[LintObject, LintContext], Iterator[Finding]]] = {
    "PodDisruptionBudget": replicas.drain_blocked,
    "VerticalPodAutoscaler": replicas.restarted_by_vpa,
    "ServiceMonitor": queries.scraped_seldom,
    "PodMonitor": queries.scraped_seldom,
    PROMETHEUS: queries.scraped_seldom,
}


class LintReport(NamedTuple):
    """problems: by file, in the order given. skipped: objects that no rule reads.

    wake_sources: what would wake each workload of the configurations.
    overrides:    brakes and schedules of the configurations, now and next, by workload.
    """

    problems: list[Problem]
    skipped: int
    wake_sources: Mapping[WorkloadKey, str]
    overrides: Mapping[str, list[str]]


class LintResult(NamedTuple):
    """problems: in the order of the objects. skipped: objects that no rule reads."""

    problems: list[Problem]
    skipped: int


class LiveReport(NamedTuple):
    """problems: by object; `file` is the object's kind and name, without lines. refused: kinds that RBAC forbids, and
    the API server's reason. blind: no kind could be read.
    """

    problems: list[Problem]
    objects: int
    refused: list[str]
    blind: bool


class Lists(Api, Protocol):
    async def groups(self) -> frozenset[str]:
        """Each `GROUP/VERSION` of the cluster. Raises ApiFailure."""


def check_files(
    files: Sequence[str], now: float | None = None, ignored: frozenset[str] = frozenset(), stdin: bytes = b""
) -> LintReport:
    """now: POSIX seconds; None skips expired brakes and active overrides. ignored: ids of rules. stdin: the content of
    the file `-`.
    """
    problems: dict[str, list[Problem]] = {}
    manifests: dict[str, str] = {}
    configs: list[Config] = []
    for file in files:
        try:
            body = stdin if file == STDIN else body_of(file, LARGEST_BYTES)
            text = decode(body, file, LARGEST_BYTES)
            if is_manifest(text) or is_prometheus(text):
                manifests[file] = text
            else:
                problems[file] = _configuration(decode(body, file, LARGEST_CONFIG_BYTES), file, configs, now)
        except ConfigErrors as errors:
            problems[file] = list(errors.problems)
    objects: list[LintObject] = []
    for file, text in manifests.items():
        roots, yaml_errors = documents(text)
        problems[file] = [Problem(file, *error.mark, dotted(error.loc), error.message) for error in yaml_errors]
        objects += [obj for root in roots for obj in objects_in(root, file)]
    result = lint_objects(objects, configs[0] if len(configs) == 1 else None, now, ignored)
    for problem in result.problems:
        problems[problem.file].append(problem)
    for found in problems.values():
        found.sort(key=lambda problem: (problem.line or 0, problem.column or 0, problem.key))
    wake_sources = {workload.key: woken_by(workload) for config in configs for workload in config.workloads}
    overrides = {} if now is None else dict(each for config in configs for each in override_lines(config, now).items())
    kept = [problem for file in files for problem in problems[file] if problem.rule not in ignored]
    return LintReport(kept, result.skipped, wake_sources, overrides)


async def check_cluster(api: Lists, namespace: str | None, now: float | None, ignored: frozenset[str]) -> LiveReport:
    """Lints all kinds of `CHECKED`. namespace: None for all. Raises ApiFailure if the API server does not respond."""
    objects: list[LintObject] = []
    refused: dict[Resource, str] = {}
    absent = 0
    for resource in CHECKED:
        try:
            objects += [obj for each in await _list(api, resource, namespace) for obj in _objects_of(each, resource)]
        except NotFound:
            absent += 1
        except Forbidden as failure:
            refused[resource] = failure.detail
    # An API server checks rights first: 403 may also mean that the cluster does not have an optional kind.
    served = await api.groups() if any(resource.optional for resource in refused) else frozenset[str]()
    result = lint_objects(objects, None, now, ignored, live=True)
    return LiveReport(
        [replace(each, line=None, column=None) for each in result.problems],
        len(objects),
        [reason for resource, reason in refused.items() if not resource.optional or resource.version in served],
        blind=len(refused) + absent == len(CHECKED),
    )


def lint_objects(
    objects: Sequence[LintObject],
    config: Config | None,
    now: float | None,
    ignored: frozenset[str],
    *,
    live: bool = False,
) -> LintResult:
    """All findings about the objects, less those that are silenced.

    config: of the daemon that will read them; None assumes the defaults. now: POSIX seconds; None skips expired brakes.
    ignored: ids of rules.
    """
    context = build_context(objects, config, live=live)
    problems: list[Problem] = []
    skipped = 0
    reports = [check_triggers(obj.value, config, now) for obj in objects]
    shared = shared_queues(config, _queue_readers(objects, reports, context))
    for obj, report in zip(objects, reports, strict=True):
        skipped += report is None and not obj.kind
        silenced, faults = read_silenced(obj.value)
        problems += [
            locate(obj.value, obj.file, finding)
            for finding in (
                *(report.findings if report is not None else ()),
                *shared.get(obj, ()),
                *_rule_findings(obj, context),
                *faults,
            )
            if finding.rule is None or finding.rule.id not in silenced | ignored
        ]
    return LintResult(problems, skipped)


def _queue_readers(
    objects: Sequence[LintObject], reports: Sequence[TriggerReport | None], context: LintContext
) -> Iterator[QueueReader]:
    """The workloads that the objects define. A controller copies annotations into the objects that it makes."""
    for obj, report in zip(objects, reports, strict=True):
        target = workload_of(obj)
        if report is not None and (target is None or not context.inherits(target)):
            yield from (QueueReader(obj, *defined) for defined in report.workloads)


def override_lines(config: Config, now: float) -> dict[str, list[str]]:
    """Brakes and schedules, now and next, by workload; those of all workloads come first. now: POSIX seconds.

    Worked example: at seven in the morning in Berlin, `{start: 0 8 * * 1-5, duration: 10h, zone: Europe/Berlin, floor:
    2}` is "next: floor 2 from 2026-11-23T08:00+01:00 until 2026-11-23T18:00+01:00 (0 8 * * 1-5 in Europe/Berlin)".
    """
    lines = {ALL_WORKLOADS: list(_brake_lines(config.brake, now))}
    for workload in config.workloads:
        schedules = (schedule.order.said_at(now) for schedule in workload.schedules)
        lines[str(workload.key)] = [*_brake_lines(workload.brake, now), *schedules]
    return {key: found for key, found in lines.items() if found}


def _brake_lines(brake: Brake | None, now: float) -> Iterator[str]:
    if brake is not None:
        yield f"{'now' if brake.holds(now) else 'over'}: {brake.typed()}"


def _configuration(text: str, file: str, configs: list[Config], now: float | None) -> list[Problem]:
    """Its warnings; adds a daemon's configuration to `configs`. Raises ConfigErrors."""
    if is_export(text):
        return parse_export(text, file, None)[1]
    config, warnings = parse(text, file, now)
    configs.append(config)
    return warnings


def _rule_findings(obj: LintObject, context: LintContext) -> Iterator[Finding]:
    scaler = context.autoscalers.get(obj)
    if scaler is not None:
        general = () if scaler.is_made_by_keda else AUTOSCALER_CHECKS
        for of_autoscaler in (*general, *(CONDITION_CHECKS if context.live else ())):
            yield from of_autoscaler(scaler, context)
    target = workload_of(obj)
    if target is not None:
        for of_workload in (*WORKLOAD_CHECKS, *(SERVER_CHECKS if _is_server(target, context) else ())):
            yield from of_workload(target, context)
    if obj.kind in CHECKS_BY_KIND:
        yield from CHECKS_BY_KIND[obj.kind](obj, context)
    if obj.kind:
        yield from keys.unknown_keys(obj)
        yield from keys.unknown_annotations(obj)


def _is_server(target: LintWorkload, context: LintContext) -> bool:
    """Annotations make a workload of Tidegate. Its HPA may be in another file, or not written yet."""
    if target.is_annotated and not context.inherits(target):
        return True
    scalers = context.scalers_of(target)
    return bool(scalers) and (target.on_gpus or any(scaler.is_ours for scaler in scalers))


async def _list(api: Api, resource: Resource, namespace: str | None) -> list[Document]:
    left = _LIST_ATTEMPTS
    while True:
        left -= 1
        try:
            return [item async for item in _items(api, resource, namespace)]
        except Gone:
            if not left:
                raise


async def _items(api: Api, resource: Resource, namespace: str | None) -> AsyncIterator[Document]:
    page = await api.page(resource, namespace, "")
    while True:
        for item in page.items:
            yield item
        if not page.after:
            return
        page = await api.page(resource, namespace, page.after)


def _objects_of(document: Document, resource: Resource) -> list[LintObject]:
    """The items of a list have no kind of their own."""
    version = resource.path.removeprefix("/apis/").removeprefix("/api/")
    whole = {**document, "apiVersion": version, "kind": resource.kind}
    return [replace(obj, file=str(obj)) for obj in objects_in(value_of(whole), "")]
