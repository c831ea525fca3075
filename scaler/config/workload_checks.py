"""What must hold between the values of one workload, and between them and the rest of the configuration.

Pure, and the same for a workload of the file and for one that a trigger or annotations make: whoever asks says where
its words stand.

Worked example: `keep_warm: 14s` at a scrape interval of 5s gives one finding, at `keep_warm`: "must be at least 3
scrape intervals (15s)".
"""

from __future__ import annotations

from collections.abc import Iterator

from exporter.catalog import GPU_KINDS

from .endpoint import Endpoint
from .endpoint_checks import endpoint_findings
from .finding import Finding
from .kinds import OWN
from .model import Config
from .order_checks import order_findings
from .problem import Loc
from .rules import BOUNDS_UNUSED, FIRST_REQUESTS_REFUSED, NO_WAKER, RISES_SLOWLY
from .scalars import AUTO, write_duration
from .wakers import at_zero
from .workload import Workload

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
