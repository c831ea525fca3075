"""Checks a workload, its brake and schedules, and groups of workloads. Pure.

The checks are the same for a workload of the file and for one of a trigger or annotations: `at` is the key of the
workload, and the caller translates keys.

Worked examples: `keep_warm: 14s` at a scrape interval of 5s gives one finding, at `keep_warm`: "must be at least 3
scrape intervals (15s)". `ai/d1` and `ai/d2` of role decode with `ratio: {to: prefill, max: 2}` and `{to: prefill, max:
3}` give one `Fault`, of the later `ai/d2` at `ratio`: "must be that of ai/d1 for role decode: from 0 to 2 for each of
prefill".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from exporter.catalog import GPU_KINDS, KINDS, QUEUE_KINDS
from scaler.model import USUAL_START_S
from scaler.policy.overrides import Brake, BrakeWord, written

from .endpoint import Endpoint
from .errors import Finding, Loc
from .model import Config
from .overrides import Schedule
from .rules import (
    BOUNDS_UNUSED,
    BRAKE_OVER,
    BRAKE_WITHOUT_END,
    FIRST_REQUESTS_REFUSED,
    FROZEN_AT_ZERO,
    GROUP_INCOMPLETE,
    NO_WAKE_SOURCE,
    OVERRIDE_BEYOND_BOUNDS,
    QUEUE_OF_ALL,
    RISES_SLOWLY,
    SLO_NOT_SIZING,
    STARTS_TOO_LATE,
    WEIGHTS_ALL_ZERO,
    WITHOUT_EFFECT,
    Rule,
    Severity,
)
from .scalars import AUTO, ENGINES, EXPORT, PRICE, write_duration
from .validate_endpoint import endpoint_findings
from .workload import Replicas, Slo, Workload, at_zero

FEWEST_READINGS = 3  # fewer idle samples may be chance


class Fault(NamedTuple):
    """A contradiction between members; the later one is at fault. member, other: indices of workloads. key: its key."""

    member: int
    other: int
    key: Loc
    message: str
    rule: Rule | None = None

    @property
    def severity(self) -> Severity:
        return "error" if self.rule is None else self.rule.severity


def workload_findings(at: Loc, workload: Workload, config: Config, now: float | None = None) -> Iterator[Finding]:
    """at: key of the workload. now: POSIX seconds; None skips checks for expired brakes."""
    yield from _sources(at, workload, config)
    yield from _slo(at, workload)
    yield from _sleep_mode((*at, "sleep_mode"), workload, config)
    replicas = workload.replicas
    if replicas.min > replicas.max:
        bound = f"must be at most replicas.max ({replicas.max})"
        yield Finding((*at, "replicas", "min"), bound, str(replicas.min), rests_on=((*at, "replicas", "max"),))
    yield from _membership(at, workload, config)
    if replicas.sleeps and workload.gateway is not None:
        yield from _at_zero(at, workload)
    elif replicas.sleeps and workload.role is None:  # a member of another role may have a gateway: see `group_faults`
        key, kept = ("min", "one replica is") if replicas.min == 0 else ("idle", "replicas.min are")
        bound = f"0 without a gateway: nothing can wake it, so {kept} kept (reason no_wake_source)"
        yield Finding((*at, "replicas", key), bound, None, NO_WAKE_SOURCE, ((*at, "gateway"),))
    yield from _times(at, workload, config)
    if workload.brake is not None:
        yield from brake_findings((*at, "brake"), workload.brake, now)
        yield from _workload_brake(at, workload.brake, workload)
    for index, schedule in enumerate(workload.schedules):
        yield from _schedule((*at, "schedules", index), schedule, workload.replicas, (*at, "replicas"))


def brake_findings(at: Loc, brake: Brake, now: float | None) -> Iterator[Finding]:
    """A brake of a workload, of all workloads, or of an annotation."""
    if brake.until is None:
        yield Finding(at, "has no end: it holds until it is removed; add `until` and a time", rule=BRAKE_WITHOUT_END)
    elif now is not None and not brake.holds(now):
        yield Finding(at, f"ended at {written(brake.until)} and has no effect", rule=BRAKE_OVER)


def group_faults(workloads: Sequence[Workload]) -> Iterator[Fault]:
    """Faults between members of a group, and between workloads that count the same queue."""
    groups: dict[tuple[str, str], list[int]] = {}
    for index, workload in enumerate(workloads):
        if workload.group is not None:
            groups.setdefault((workload.namespace, workload.group), []).append(index)
    for members in groups.values():
        yield from _group(workloads, members)
    yield from same_queue_faults(workloads)


def _membership(at: Loc, workload: Workload, config: Config) -> Iterator[Finding]:
    ratio = workload.ratio
    if workload.group is None:
        for key in ("role", "weight", "order", "ratio"):
            if key in workload.model_fields_set and getattr(workload, key) != type(workload).model_fields[key].default:
                yield Finding((*at, key), "goes with group, which is not given", rests_on=((*at, "group"),))
    elif ratio is not None and workload.role is None:
        yield Finding((*at, "ratio"), "goes with role, which is not given", rests_on=((*at, "role"),))
    shows_gpus = config.kubernetes is not None or config.gpus
    if workload.group is not None and workload.order == PRICE and workload.gpu_hour is None and not shows_gpus:
        bound = "price is never known: it needs gpu_hour, or GPUs that gpus or kubernetes show; so weight decides"
        yield Finding((*at, "order"), bound, None, WITHOUT_EFFECT, ((*at, "gpu_hour"), ("gpus",), ("kubernetes",)))
    if ratio is None:
        return
    if ratio.to == workload.role:
        bound = "must be another role than the workload's"
        yield Finding((*at, "ratio", "to"), bound, ratio.to, rests_on=((*at, "role"),))
    if ratio.max is not None and ratio.min > ratio.max:
        bound = f"must be at most ratio.max ({ratio.max:g})"
        yield Finding((*at, "ratio", "min"), bound, f"{ratio.min:g}", rests_on=((*at, "ratio", "max"),))


def _at_zero(at: Loc, workload: Workload) -> Iterator[Finding]:
    """The fate of a request that finds no replica."""
    key, kind = (*at, "gateway", "kind"), workload.gateway_kind
    match at_zero(workload):
        case "nothing":
            bound = f"{kind} shows no request at zero replicas, so one is kept (reason no_wake_source)"
            yield Finding(key, bound, None, NO_WAKE_SOURCE, ((*at, "replicas"),))
        case "refused" | "counted":
            bound = f"{kind} rejects requests at zero replicas: the first ones fail, and wake the workload"
            yield Finding(key, bound, None, FIRST_REQUESTS_REFUSED, ((*at, "replicas"),))


def _times(at: Loc, workload: Workload, config: Config) -> Iterator[Finding]:
    interval_s = config.scrape.interval
    interval_key: tuple[Loc, ...] = (("scrape", "interval"),)
    shortest_s = FEWEST_READINGS * interval_s
    if workload.keep_warm != AUTO and workload.keep_warm < shortest_s:
        bound = f"must be at least {FEWEST_READINGS} scrape intervals ({write_duration(shortest_s)})"
        yield Finding((*at, "keep_warm"), bound, write_duration(workload.keep_warm), rests_on=interval_key)
    yield from _keep_warm_bounds(at, workload, shared=config.sharing is not None)
    up_s, down_s = workload.smoothing.up, workload.smoothing.down
    for key, half_life_s in (("up", up_s), ("down", down_s)):
        # A default below a slow scrape interval does no harm: each sample then has almost the full weight.
        if key in workload.smoothing.model_fields_set and 0 < half_life_s < interval_s:
            bound = f"must be 0 or at least the scrape interval ({write_duration(interval_s)})"
            yield Finding((*at, "smoothing", key), bound, write_duration(half_life_s), rests_on=interval_key)
    if up_s > down_s:
        bound = f"is slower than smoothing.down ({write_duration(down_s)}): replicas go before they come"
        rests_on = ((*at, "smoothing", "down"),)
        yield Finding((*at, "smoothing", "up"), bound, write_duration(up_s), RISES_SLOWLY, rests_on)


def _keep_warm_bounds(at: Loc, workload: Workload, *, shared: bool) -> Iterator[Finding]:
    """A lower bound below 3 scrape intervals is no fault: idleness needs those in any case.

    shared: an idle workload may end its keep-warm time at the lower bound, for others.
    """
    lowest, highest, key = workload.keep_warm_min, workload.keep_warm_max, (*at, "keep_warm")
    if lowest > highest:
        bound = f"must be at most keep_warm_max ({write_duration(highest)})"
        yield Finding((*at, "keep_warm_min"), bound, write_duration(lowest), rests_on=((*at, "keep_warm_max"),))
    if workload.keep_warm == AUTO:
        return
    for name in ("keep_warm_max",) if shared else ("keep_warm_min", "keep_warm_max"):
        value = getattr(workload, name)
        if value != Workload.model_fields[name].default:
            bound = f"is not used: keep_warm is {write_duration(workload.keep_warm)}, and not auto"
            yield Finding((*at, name), bound, write_duration(value), BOUNDS_UNUSED, (key,))


def _sources(at: Loc, workload: Workload, config: Config) -> Iterator[Finding]:
    pods, gateway, on_gpus = workload.pods, workload.gateway, workload.objectives.gpu_engine is not None
    if on_gpus and not config.gpus and config.gpu_search is None:
        bound = "needs gpus, or kubernetes with dcgm_exporter: no target would show it"
        gpu_keys = (("gpus",), ("kubernetes",), ("kubernetes", "dcgm_exporter"))
        yield Finding((*at, "objectives", "gpu_engine"), bound, rests_on=gpu_keys)
    if pods is None and gateway is None and not on_gpus:
        sources = ((*at, "pods"), (*at, "gateway"), (*at, "objectives", "gpu_engine"))
        bound = "must have pods, a gateway, or objectives.gpu_engine: nothing shows how busy it is"
        yield Finding(at, bound, rests_on=sources)
    if pods is not None:
        yield from endpoint_findings((*at, "pods"), pods, "pods", config.kubernetes, workload.namespace)
        if workload.engine is None:
            yield Finding((*at, "engine"), "must be given with pods: it determines how their metrics are read")
        elif pods.kind not in {None, EXPORT, workload.engine}:
            bound = f"must be the engine ({workload.engine}), {EXPORT} for `tidegate export` beside it, or left out"
            yield Finding((*at, "pods", "kind"), bound, str(pods.kind), rests_on=((*at, "engine"),))
    if gateway is not None:
        yield from endpoint_findings((*at, "gateway"), gateway, "gateway", config.kubernetes, workload.namespace)
        if gateway.kind in GPU_KINDS:
            yield Finding((*at, "gateway", "kind"), "must see requests", gateway.kind)
    if pods is not None and gateway is not None and _same_target(workload, pods, gateway):
        bound = "must be another target than pods: those are gone at zero and see no request"
        keys = ("url", "urls", "dns", "prometheus", "port", "path", "scheme", "kind")
        rests_on = tuple((*at, section, key) for section in ("pods", "gateway") for key in keys)
        yield Finding((*at, "gateway"), bound, rests_on=(*rests_on, (*at, "engine")))


def _slo(at: Loc, workload: Workload) -> Iterator[Finding]:
    slo, kind = workload.slo, None if workload.engine is None else KINDS[workload.engine]
    if slo is not None and slo.start_within is not None:
        yield from _start_within((*at, "slo"), slo, workload)
        return
    if slo is None or (kind is not None and kind.sized_by_slo):
        return
    given = tuple(key for key in Slo.model_fields if key in slo.model_fields_set)[:1]
    here, rests_on = (*at, "slo", *given), ((*at, "engine"),)
    if kind is not None and kind.measures_slo:
        bound = f"is measured, not used for sizing: {kind.unsized}"
        yield Finding(here, bound, None, SLO_NOT_SIZING, rests_on)
        return
    engines = ", ".join(name for name in ENGINES if KINDS[name].sized_by_slo or KINDS[name].measures_slo)
    bound = f"needs an engine that exposes tokens or latencies ({engines}): set objectives.work instead"
    yield Finding(here, bound, rests_on=rests_on)


def _sleep_mode(at: Loc, workload: Workload, config: Config) -> Iterator[Finding]:
    sleep, above = workload.sleep_mode, at[:-1]
    if sleep is None:
        return
    if workload.engine != "vllm" or workload.pods is None:
        yield Finding(at, "needs engine vllm and its pods: no other engine shows that it sleeps", rests_on=(above,))
    elif sleep.calls and workload.pods.prometheus is not None:
        bound = "needs pods that are scraped: through Prometheus no engine can be called"
        yield Finding((*at, "calls"), bound, rests_on=((*above, "pods"),))
    if workload.gateway is None or not _shows_asleep(workload):
        kinds = ", ".join(name for name, kind in KINDS.items() if kind.counts_open)
        bound = f"needs a gateway that counts open requests ({kinds}): an engine that sleeps shows none"
        yield Finding(at, bound, rests_on=((*above, "gateway"),))
    shortest_s = FEWEST_READINGS * config.scrape.interval
    if sleep.after != AUTO and sleep.after < shortest_s:
        bound = f"must be at least {FEWEST_READINGS} scrape intervals ({write_duration(shortest_s)})"
        yield Finding((*at, "after"), bound, write_duration(sleep.after), rests_on=(("scrape", "interval"),))
    if sleep.after == AUTO and sleep.gpu_share == 1.0:
        bound = "is 1: asleep a replica costs as much as ready, so it never sleeps"
        yield Finding((*at, "gpu_share"), bound, None, WITHOUT_EFFECT, ((*at, "after"),))


def _shows_asleep(workload: Workload) -> bool:
    """Whether its gateway shows a request that waits in an engine that sleeps."""
    gateway, kind = workload.gateway, KINDS.get(workload.gateway_kind)
    # A trigger may name a shared gateway, whose kind is not known here; `tidegate export` shows what stands behind it.
    if gateway is None or kind is None or gateway.kind == EXPORT:
        return True
    return kind.counts_open or (kind.at_zero == "queue" and not kind.repeats_engines)


def _start_within(at: Loc, slo: Slo, workload: Workload) -> Iterator[Finding]:
    here, above = (*at, "start_within"), at[:-1]
    for key in ("ttft", "itl"):
        if getattr(slo, key) != Slo.model_fields[key].default:
            yield Finding((*at, key), "is not allowed beside start_within: it is of a language model", rests_on=(here,))
    gateway = workload.gateway
    # A trigger may name a shared gateway, whose kind is not known here.
    if gateway is None or (gateway.kind is not None and gateway.kind not in {*QUEUE_KINDS, EXPORT}):
        bound = f"needs a gateway with a queue of jobs ({', '.join(QUEUE_KINDS)})"
        yield Finding(here, bound, rests_on=((*above, "gateway"),))
    elif workload.engine is not None and KINDS[workload.engine].sized_by_slo:
        bound = f"is not allowed with engine {workload.engine}: ttft and itl size it"
        yield Finding(here, bound, rests_on=((*above, "engine"),))
    elif workload.replicas.sleeps and slo.start_within is not None and slo.start_within <= USUAL_START_S:
        bound = f"is at most a usual start ({write_duration(USUAL_START_S)}): no job that comes at zero meets it"
        rests_on = ((*above, "replicas"),)
        yield Finding(here, bound, write_duration(slo.start_within), STARTS_TOO_LATE, rests_on)


def _same_target(workload: Workload, pods: Endpoint, gateway: Endpoint) -> bool:
    engine, kind = workload.engine or workload.gateway_kind, workload.gateway_kind
    if pods.dns is not None and pods.dns == gateway.dns:
        return pods.page_at(pods.dns, engine) == gateway.page_at(pods.dns, kind)
    if pods.prometheus is not None and pods.prometheus == gateway.prometheus:
        return engine == kind
    return bool(set(pods.pages(engine)) & set(gateway.pages(kind)))


def _workload_brake(at: Loc, brake: Brake, workload: Workload) -> Iterator[Finding]:
    here, replicas = (*at, "brake"), workload.replicas
    if brake.word is BrakeWord.FREEZE and replicas.sleeps and workload.gateway is not None:
        bound = "also freezes it at zero, where no request wakes it: never_down lets it wake"
        yield Finding(here, bound, None, FROZEN_AT_ZERO, ((*at, "replicas"), (*at, "gateway")))
    if brake.floor > replicas.max:
        bound = f"has a floor above replicas.max ({replicas.max}), which takes precedence"
        yield Finding(here, bound, None, OVERRIDE_BEYOND_BOUNDS, ((*at, "replicas", "max"),))


def _schedule(at: Loc, schedule: Schedule, replicas: Replicas, bounds: Loc) -> Iterator[Finding]:
    floor, ceiling = schedule.floor, schedule.ceiling
    ends = ((*at, "end"), (*at, "duration"))
    if schedule.end is None and schedule.duration is None:
        yield Finding(at, "must have an end or a duration", rests_on=ends)
    if schedule.end is not None and schedule.duration is not None:
        yield Finding((*at, "end"), "is not allowed beside duration: one of them ends the window", rests_on=ends)
    if floor is None and ceiling is None:
        limits = ((*at, "floor"), (*at, "ceiling"))
        yield Finding(at, "must have a floor or a ceiling", rests_on=limits)
    if floor is not None and ceiling is not None and floor > ceiling:
        yield Finding((*at, "floor"), f"must be at most ceiling ({ceiling})", str(floor), rests_on=((*at, "ceiling"),))
    if floor is not None and floor > replicas.max:
        bound = f"is above replicas.max ({replicas.max}), which takes precedence"
        yield Finding((*at, "floor"), bound, str(floor), OVERRIDE_BEYOND_BOUNDS, ((*bounds, "max"),))
    if ceiling is not None and ceiling < replicas.min:
        bound = f"is below replicas.min ({replicas.min}), which takes precedence"
        yield Finding((*at, "ceiling"), bound, str(ceiling), OVERRIDE_BEYOND_BOUNDS, ((*bounds, "min"),))


def _group(workloads: Sequence[Workload], members: list[int]) -> Iterator[Fault]:
    if len(members) == 1:
        bound = "has no other member in this namespace: a group of one is no group"
        yield Fault(members[0], members[0], ("group",), bound, GROUP_INCOMPLETE)
        return
    yield from _ratios(workloads, members)
    roles: dict[str | None, list[int]] = {}
    for index in members:
        roles.setdefault(workloads[index].role, []).append(index)
    for role, holders in roles.items():
        if all(workloads[index].weight == 0 for index in holders):
            of_role = "of the group" if role is None else f"of role {role}"
            bound = f"is 0 for every member {of_role}: they share the demand evenly, so that none is lost"
            yield Fault(holders[-1], holders[0], ("weight",), bound, WEIGHTS_ALL_ZERO)
        first = workloads[holders[0]]
        for index in holders[1:]:
            if (workloads[index].order == PRICE) is not (first.order == PRICE):
                bound = f"must be price for all members of a role or none: {first.key} has {first.order}"
                yield Fault(index, holders[0], ("order",), bound)
    if len(roles) > 1 and all(workloads[index].gateway is None for index in members):
        for index in members:
            if workloads[index].replicas.sleeps:
                bound = "0 without a gateway at any member of its group: nothing can wake it (reason no_wake_source)"
                yield Fault(index, members[0], ("replicas",), bound, NO_WAKE_SOURCE)


def _ratios(workloads: Sequence[Workload], members: list[int]) -> Iterator[Fault]:
    """Different ratios of one role, ratios in a circle, and a ratio to a role without members."""
    roles = {workloads[index].role for index in members}
    first: dict[str, int] = {}
    for index in members:
        role, ratio = workloads[index].role, workloads[index].ratio
        if role is None or ratio is None:
            continue
        if ratio.to not in roles:
            bound = "is a role that no member of the group has"
            yield Fault(index, index, ("ratio", "to"), bound, GROUP_INCOMPLETE)
        before = first.setdefault(role, index)
        other = workloads[before].ratio
        if before != index and other is not None and other != ratio:
            most = "" if other.max is None else f" to {other.max:g}"
            shown = f"from {other.min:g}{most} for each of {other.to}"
            bound = f"must be that of {workloads[before].key} for role {role}: {shown}"
            yield Fault(index, before, ("ratio",), bound)
        elif before == index and (circle := _circle(workloads, first, role)):
            names = ", ".join(str(workloads[each].key) for each in circle if each != index)
            bound = f"must not close a circle: the ratios of {names} lead back to role {role}"
            del first[role]
            yield Fault(index, circle[0] if circle[0] != index else circle[-1], ("ratio", "to"), bound)


def _circle(workloads: Sequence[Workload], first: dict[str, int], role: str) -> list[int]:
    """The members with the ratios that lead from a role back to it; empty if none do."""
    path: list[int] = []
    at = role
    while at in first and first[at] not in path:
        path.append(first[at])
        ratio = workloads[first[at]].ratio
        at = ratio.to if ratio is not None else ""
    return path if at == role and len(path) > 1 else []


def same_queue_faults(workloads: Sequence[Workload]) -> Iterator[Fault]:
    """Workloads that count the same queue of the same gateway without a common group: each counts all of it."""
    first: dict[tuple[object, str], list[int]] = {}
    for index, workload in enumerate(workloads):
        if workload.gateway is None:
            continue
        gateway = workload.gateway
        # A Service without a namespace is another one in each namespace.
        home = workload.namespace if gateway.service_in("") != gateway.service_in(workload.namespace) else ""
        for before in first.setdefault((gateway, home), []):
            other = workloads[before]
            same_queue = other.model == workload.model or other.model is None or workload.model is None
            same_group = workload.group is not None and (
                (other.group, other.namespace) == (workload.group, workload.namespace)
            )
            if same_queue and not same_group:
                bound = (
                    f"shows the same queue as that of {other.key} without a common group: each counts all of it. "
                    "Give each a model, or both a group"
                )
                yield Fault(index, before, ("gateway",), bound, QUEUE_OF_ALL)
                break
        first[gateway, home].append(index)
