"""What must hold between the values of one workload, and between them and the rest of the configuration.

Pure, and the same for a workload of the file and for one that a trigger or annotations make: whoever asks says where
its words stand.

Worked example: `keep_warm: 14s` at a scrape interval of 5s gives one finding, at `keep_warm`: "must be at least 3
scrape intervals (15s)".

What must hold between the members of a group, and between workloads that look at one queue. Pure.

The same for workloads of the file and for those of triggers and annotations: a `Fault` names the member that has to
change and the other one, and whoever asks says where their words stand. Of two that contradict each other the later
one is at fault, in the order given.

Worked example: `ai/d1` and `ai/d2` of role decode with `ratio: {to: prefill, max: 2}` and `{to: prefill, max: 3}` give
one fault, of `ai/d2` at `ratio`: "must be what ai/d1 says of role decode: from 0 to 2 for each of prefill".

What must hold between the values of a brake or a schedule, and between them and a workload's bounds. Pure.

Worked example: a schedule with `floor: 12` for a workload of at most 10 replicas gives one warning, at `floor`: "is
above replicas.max (10), which holds: more are never asked for".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from exporter.catalog import GPU_KINDS
from scaler.policy.overrides import Brake, BrakeWord, written

from .endpoint import Endpoint
from .errors import Finding, Loc
from .model import Config
from .overrides import Schedule
from .rules import (
    BOUNDS_UNUSED,
    BRAKE_OVER,
    BRAKE_WITHOUT_END,
    EVERYBODYS_QUEUE,
    FIRST_REQUESTS_REFUSED,
    FROZEN_ASLEEP,
    GROUP_INCOMPLETE,
    NO_WAKER,
    ORDER_BEYOND_BOUNDS,
    RISES_SLOWLY,
    WEIGHTS_ALL_ZERO,
    Rule,
    Severity,
)
from .scalars import AUTO, OWN, write_duration
from .validate_endpoint import endpoint_findings
from .workload import Replicas, RoleRatio, Workload, at_zero

FEWEST_READINGS = 3  # idleness seen less often is chance


def workload_findings(at: Loc, workload: Workload, config: Config, now: float | None = None) -> Iterator[Finding]:
    """What is said of one workload, wherever its words come from. `at`: where they stand. `now`: POSIX seconds; None:
    what is over is not looked for.
    """
    yield from _sources(at, workload, config)
    replicas = workload.replicas
    if replicas.min > replicas.max:
        yield Finding(
            (*at, "replicas", "min"),
            f"must be at most replicas.max ({replicas.max})",
            ((*at, "replicas", "max"),),
            str(replicas.min),
        )
    yield from _membership(at, workload)
    if replicas.sleeps and workload.gateway is None and workload.role is not None:
        pass  # a member of another role may have a waker: see `group_checks`
    elif replicas.sleeps and workload.gateway is None:
        key, kept = ("min", "one replica is") if replicas.min == 0 else ("idle", "replicas.min are")
        yield Finding(
            (*at, "replicas", key),
            f"0 without a gateway: nothing can wake it, so {kept} kept (reason no_waker)",
            ((*at, "gateway"),),
            severity="warning",
            rule=NO_WAKER,
        )
    elif replicas.sleeps:
        yield from _at_zero(at, workload)
    yield from _times(at, workload, config.scrape.interval)
    yield from order_findings(at, workload, now)


def _membership(at: Loc, workload: Workload) -> Iterator[Finding]:
    ratio = workload.ratio
    if workload.group is None:
        for key in ("role", "weight", "ratio"):
            if key in workload.model_fields_set and getattr(workload, key) != type(workload).model_fields[key].default:
                yield Finding((*at, key), "goes with group, which is not given", ((*at, "group"),))
    elif ratio is not None and workload.role is None:
        yield Finding((*at, "ratio"), "goes with role, which is not given", ((*at, "role"),))
    if ratio is None:
        return
    if ratio.to == workload.role:
        yield Finding((*at, "ratio", "to"), "must be another role than its own", ((*at, "role"),), ratio.to)
    if ratio.max is not None and ratio.min > ratio.max:
        bound = f"must be at most ratio.max ({ratio.max:g})"
        yield Finding((*at, "ratio", "min"), bound, ((*at, "ratio", "max"),), f"{ratio.min:g}")


def _at_zero(at: Loc, workload: Workload) -> Iterator[Finding]:
    """What becomes of a request that finds no replica."""
    key, kind = (*at, "gateway", "kind"), workload.gateway_kind
    match at_zero(workload):
        case "nothing":
            bound = f"a page of {kind} shows no request at zero replicas, so one is kept (reason no_waker)"
            yield Finding(key, bound, ((*at, "replicas"),), severity="warning", rule=NO_WAKER)
        case "refused" | "counted":
            bound = f"{kind} turns requests away while no replica is there: the first ones fail, and wake it"
            yield Finding(key, bound, ((*at, "replicas"),), severity="warning", rule=FIRST_REQUESTS_REFUSED)


def _times(at: Loc, workload: Workload, interval: float) -> Iterator[Finding]:
    scraped = (("scrape", "interval"),)
    shortest = FEWEST_READINGS * interval
    bound = f"must be at least {FEWEST_READINGS} scrape intervals ({write_duration(shortest)})"
    if workload.keep_warm != AUTO and workload.keep_warm < shortest:
        yield Finding((*at, "keep_warm"), bound, scraped, write_duration(workload.keep_warm))
    yield from _learned_times(at, workload)
    smoothing = workload.smoothing
    for field, half_life in (("up", smoothing.up), ("down", smoothing.down)):
        # A default that a slow scrape overtakes does no harm: each reading is then nearly believed at once.
        if field in smoothing.model_fields_set and 0 < half_life < interval:
            bound = f"must be 0 or at least the scrape interval ({write_duration(interval)})"
            yield Finding((*at, "smoothing", field), bound, scraped, write_duration(half_life))
    if smoothing.up > smoothing.down:
        yield Finding(
            (*at, "smoothing", "up"),
            f"is slower than smoothing.down ({write_duration(smoothing.down)}): replicas go before they come",
            ((*at, "smoothing", "down"),),
            write_duration(smoothing.up),
            "warning",
            RISES_SLOWLY,
        )


def _learned_times(at: Loc, workload: Workload) -> Iterator[Finding]:
    """Bounds of a keep-warm time that is learned. One below what proves idleness does no harm: that holds as well."""
    lowest, highest, key = workload.keep_warm_min, workload.keep_warm_max, (*at, "keep_warm")
    if lowest > highest:
        bound = f"must be at most keep_warm_max ({write_duration(highest)})"
        yield Finding((*at, "keep_warm_min"), bound, ((*at, "keep_warm_max"),), write_duration(lowest))
    if workload.keep_warm == AUTO:
        return
    for name in ("keep_warm_min", "keep_warm_max"):
        if getattr(workload, name) == Workload.model_fields[name].default:
            continue
        bound = f"is not used: keep_warm is {write_duration(workload.keep_warm)}, and not auto"
        yield Finding((*at, name), bound, (key,), write_duration(getattr(workload, name)), "warning", BOUNDS_UNUSED)


def _sources(at: Loc, workload: Workload, config: Config) -> Iterator[Finding]:
    pods, gateway, on_gpus = workload.pods, workload.gateway, workload.objectives.gpu_engine is not None
    if on_gpus and not config.gpus and config.gpu_search is None:
        bound = "needs gpus, or kubernetes with dcgm_exporter: no page is asked that would show it"
        rests_on = (("gpus",), ("kubernetes",), ("kubernetes", "dcgm_exporter"))
        yield Finding((*at, "objectives", "gpu_engine"), bound, rests_on)
    if pods is None and gateway is None and not on_gpus:
        sources = ((*at, "pods"), (*at, "gateway"), (*at, "objectives", "gpu_engine"))
        yield Finding(at, "must have pods, a gateway, or objectives.gpu_engine: nothing says how busy it is", sources)
    if pods is not None:
        yield from endpoint_findings((*at, "pods"), pods, "pods", config.kubernetes, workload.namespace)
        if workload.engine is None:
            yield Finding((*at, "engine"), "must be given with pods: it says how their pages are read")
        elif pods.kind not in {None, OWN, workload.engine}:
            bound = f"must be the engine ({workload.engine}), {OWN} for the page of an export beside it, or left out"
            yield Finding((*at, "pods", "kind"), bound, ((*at, "engine"),), str(pods.kind))
    if gateway is not None:
        yield from endpoint_findings((*at, "gateway"), gateway, "gateway", config.kubernetes, workload.namespace)
        if gateway.kind in GPU_KINDS:
            yield Finding((*at, "gateway", "kind"), "must see requests", got=gateway.kind)
    if pods is not None and gateway is not None and _same_page(workload, pods, gateway):
        bound = "must be another page than pods: that one vanishes with the pods and sees no request at zero"
        parts = ("url", "urls", "dns", "prometheus", "port", "path", "scheme", "kind")
        pages = tuple((*at, page, part) for page in ("pods", "gateway") for part in parts)
        yield Finding((*at, "gateway"), bound, (*pages, (*at, "engine")))


def _same_page(workload: Workload, pods: Endpoint, gateway: Endpoint) -> bool:
    engine, kind = workload.engine or workload.gateway_kind, workload.gateway_kind
    if pods.dns is not None and pods.dns == gateway.dns:
        return pods.page_at(pods.dns, engine) == gateway.page_at(pods.dns, kind)
    if pods.prometheus is not None and pods.prometheus == gateway.prometheus:
        return engine == kind
    return bool(set(pods.pages(engine)) & set(gateway.pages(kind)))


class Fault(NamedTuple):
    """member, other: places in the list that was asked about. key: of the member's words."""

    member: int
    other: int
    key: Loc
    message: str
    severity: Severity = "error"
    rule: Rule | None = None


def group_faults(workloads: Sequence[Workload]) -> Iterator[Fault]:
    groups: dict[tuple[str, str], list[int]] = {}
    for place, workload in enumerate(workloads):
        if workload.group is not None:
            groups.setdefault((workload.namespace, workload.group), []).append(place)
    for members in groups.values():
        yield from _within(workloads, members)
    yield from _strangers(workloads)


def _within(workloads: Sequence[Workload], members: list[int]) -> Iterator[Fault]:
    if len(members) == 1:
        bound = "has no other member in this namespace: a group of one is no group"
        yield Fault(members[0], members[0], ("group",), bound, "warning", GROUP_INCOMPLETE)
        return
    yield from _ratios(workloads, members)
    roles: dict[str | None, list[int]] = {}
    for place in members:
        roles.setdefault(workloads[place].role, []).append(place)
    for role, players in roles.items():
        if all(workloads[place].weight == 0 for place in players):
            bound = f"is 0 for every member {_of(role)}: they share it evenly, as demand must not vanish"
            yield Fault(players[-1], players[0], ("weight",), bound, "warning", WEIGHTS_ALL_ZERO)
    seers = [place for place in members if workloads[place].gateway is not None]
    if len(roles) > 1 and not seers:
        for place in members:
            if workloads[place].replicas.sleeps:
                bound = "0 without a gateway at any member of its group: nothing can wake it (reason no_waker)"
                yield Fault(place, members[0], ("replicas",), bound, "warning", NO_WAKER)


def _ratios(workloads: Sequence[Workload], members: list[int]) -> Iterator[Fault]:
    """Two bounds of one role, bounds in a circle, and bounds on a role that nobody plays."""
    roles = {workloads[place].role for place in members}
    first: dict[str, int] = {}
    for place in members:
        role, ratio = workloads[place].role, workloads[place].ratio
        if role is None or ratio is None:
            continue
        if ratio.to not in roles:
            bound = "is a role that no member of the group has"
            yield Fault(place, place, ("ratio", "to"), bound, "warning", GROUP_INCOMPLETE)
        before = first.setdefault(role, place)
        said = workloads[before].ratio
        if before != place and said is not None and said != ratio:
            bound = f"must be what {workloads[before].key} says of role {role}: {_words(said)}"
            yield Fault(place, before, ("ratio",), bound)
        elif before == place and (circle := _circle(workloads, first, role)):
            names = ", ".join(str(workloads[each].key) for each in circle if each != place)
            bound = f"must not close a circle of bounds: those of {names} lead back to role {role}"
            del first[role]
            yield Fault(place, circle[0] if circle[0] != place else circle[-1], ("ratio", "to"), bound)


def _circle(workloads: Sequence[Workload], first: dict[str, int], role: str) -> list[int]:
    """The members by whose bounds one gets from a role back to it; none where one does not."""
    way: list[int] = []
    at = role
    while at in first and first[at] not in way:
        way.append(first[at])
        ratio = workloads[first[at]].ratio
        at = ratio.to if ratio is not None else ""
    return way if at == role and len(way) > 1 else []


def _strangers(workloads: Sequence[Workload]) -> Iterator[Fault]:
    """Workloads that look at the same queue of the same page and are in no common group: each counts the whole."""
    first: dict[tuple[object, str], list[int]] = {}
    for place, workload in enumerate(workloads):
        if workload.gateway is None:
            continue
        page = workload.gateway
        where = workload.namespace if page.service_in("") != page.service_in(workload.namespace) else ""
        for before in first.setdefault((page, where), []):
            one = workloads[before]
            same_queue = one.model == workload.model or one.model is None or workload.model is None
            same_group = (one.group, one.namespace) == (workload.group, workload.namespace) and one.group is not None
            if same_queue and not same_group:
                bound = (
                    f"shows the same queue as that of {one.key}, and they are in no common group: each counts the "
                    "whole of it. Name a model for each, or a group"
                )
                yield Fault(place, before, ("gateway",), bound, "warning", EVERYBODYS_QUEUE)
                break
        first[page, where].append(place)


def _of(role: str | None) -> str:
    return "of the group" if role is None else f"of role {role}"


def _words(ratio: RoleRatio) -> str:
    most = "" if ratio.max is None else f" to {ratio.max:g}"
    return f"from {ratio.min:g}{most} for each of {ratio.to}"


def order_findings(at: Loc, workload: Workload, now: float | None) -> Iterator[Finding]:
    """What is said of a workload's own brake and schedules. now: POSIX seconds; None: nobody looks for what is over."""
    if workload.brake is not None:
        yield from brake_findings((*at, "brake"), workload.brake, now)
        yield from _for_whom(at, workload.brake, workload)
    for index, schedule in enumerate(workload.schedules):
        yield from _schedule((*at, "schedules", index), schedule, workload.replicas, (*at, "replicas"))


def brake_findings(at: Loc, brake: Brake, now: float | None) -> Iterator[Finding]:
    """What is said of any brake, whoever's it is."""
    if brake.until is None:
        bound = "has no end: it holds until somebody takes it away; say `until` and a moment"
        yield Finding(at, bound, severity="warning", rule=BRAKE_WITHOUT_END)
    elif now is not None and not brake.holds(now):
        bound = f"is over since {written(brake.until)}: it orders nothing"
        yield Finding(at, bound, severity="warning", rule=BRAKE_OVER)


def _for_whom(at: Loc, brake: Brake, workload: Workload) -> Iterator[Finding]:
    here, replicas = (*at, "brake"), workload.replicas
    if brake.word is BrakeWord.FREEZE and replicas.sleeps and workload.gateway is not None:
        bound = "freezes it at zero too, where nothing wakes it: never_down lets it wake"
        yield Finding(here, bound, ((*at, "replicas"), (*at, "gateway")), severity="warning", rule=FROZEN_ASLEEP)
    if brake.floor > replicas.max:
        bound = f"has a floor above replicas.max ({replicas.max}), which holds: more are never asked for"
        yield Finding(here, bound, ((*at, "replicas", "max"),), severity="warning", rule=ORDER_BEYOND_BOUNDS)


def _schedule(at: Loc, schedule: Schedule, replicas: Replicas, bounds: Loc) -> Iterator[Finding]:
    floor, ceiling = schedule.floor, schedule.ceiling
    ends = ((*at, "end"), (*at, "duration"))
    if schedule.end is None and schedule.duration is None:
        yield Finding(at, "must have an end or a duration", ends)
    if schedule.end is not None and schedule.duration is not None:
        yield Finding((*at, "end"), "must not stand beside duration: one of them ends the window", ends)
    if floor is None and ceiling is None:
        named = ((*at, "floor"), (*at, "ceiling"))
        yield Finding(at, "must have a floor or a ceiling: else it orders nothing", named)
    if floor is not None and ceiling is not None and floor > ceiling:
        yield Finding((*at, "floor"), f"must be at most ceiling ({ceiling})", ((*at, "ceiling"),), str(floor))
    if floor is not None and floor > replicas.max:
        bound = f"is above replicas.max ({replicas.max}), which holds: more are never asked for"
        yield Finding((*at, "floor"), bound, ((*bounds, "max"),), str(floor), "warning", ORDER_BEYOND_BOUNDS)
    if ceiling is not None and ceiling < replicas.min:
        bound = f"is below replicas.min ({replicas.min}), which holds: fewer are never asked for"
        yield Finding((*at, "ceiling"), bound, ((*bounds, "min"),), str(ceiling), "warning", ORDER_BEYOND_BOUNDS)
