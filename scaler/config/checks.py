"""What must hold between values. What a single value may be, the model says itself.

Pure: a configuration in, findings out. A finding names the key that a person should change, and everything it rests
on; whoever knows that one of those was never read properly throws the finding away.

Worked example: `scrape: {interval: 2s, timeout: 3s}` gives one finding, at ("scrape", "timeout"): "must be at most
the scrape interval (2s)".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .endpoint import Access, Endpoint
from .kinds import GPUS
from .model import Config, Listen
from .problem import Loc, Severity
from .scalars import write_duration
from .workload import Workload

FEWEST_READINGS = 3  # idleness seen less often is chance


class Finding(NamedTuple):
    """rests_on: further keys without which it means nothing. got: the value, as written by default; "" has none."""

    key: Loc
    message: str
    rests_on: tuple[Loc, ...] = ()
    got: str = ""
    severity: Severity = "error"


def findings(config: Config) -> Iterator[Finding]:
    interval = config.scrape.interval
    if config.scrape.timeout > interval:
        yield Finding(
            ("scrape", "timeout"),
            f"must be at most the scrape interval ({write_duration(interval)})",
            (("scrape", "interval"),),
            write_duration(config.scrape.timeout),
        )
    yield from _listen(config.listen)
    for index, endpoint in enumerate(config.gpus):
        yield from _endpoint(("gpus", index), endpoint)
        if endpoint.kind not in {None, GPUS}:
            yield Finding(("gpus", index, "kind"), f"must be {GPUS}", got=str(endpoint.kind))
    yield from _twins(config.workloads)
    for index, workload in enumerate(config.workloads):
        yield from _workload(("workloads", index), workload, config)
    if not config.workloads and not config.gpus:
        yield Finding(
            ("workloads",), "nothing is configured: no page is asked, nothing is decided", (("gpus",),), "", "warning"
        )


def _listen(listen: Listen) -> Iterator[Finding]:
    everywhere = {"0.0.0.0", "::"}  # noqa: S104  compared, not bound
    hosts = {listen.http.host, listen.grpc.host}
    if listen.http.port == listen.grpc.port != 0 and (len(hosts) == 1 or hosts & everywhere):
        yield Finding(
            ("listen", "grpc"),
            f"must be another port than listen.http ({listen.http})",
            (("listen", "http"),),
            str(listen.grpc),
        )


def _twins(workloads: tuple[Workload, ...]) -> Iterator[Finding]:
    first: dict[tuple[str, str], int] = {}
    for index, workload in enumerate(workloads):
        twin = first.setdefault(workload.key, index)
        if twin != index:
            names = tuple(("workloads", at, part) for at in (twin, index) for part in ("namespace", "name"))
            yield Finding(
                ("workloads", index, "name"),
                f"must be one workload: workloads.{twin} is {workload.key} too",
                names,
                workload.name,
            )


def _workload(at: Loc, workload: Workload, config: Config) -> Iterator[Finding]:
    yield from _sources(at, workload, config)
    replicas = workload.replicas
    if replicas.min > replicas.max:
        yield Finding(
            (*at, "replicas", "min"),
            f"must be at most replicas.max ({replicas.max})",
            ((*at, "replicas", "max"),),
            str(replicas.min),
        )
    if replicas.min == 0 and workload.gateway is None:
        yield Finding(
            (*at, "replicas", "min"),
            "0 without a gateway: nothing can wake it, so one replica is kept (reason no_waker)",
            ((*at, "gateway"),),
            severity="warning",
        )
    yield from _times(at, workload, config.scrape.interval)


def _times(at: Loc, workload: Workload, interval: float) -> Iterator[Finding]:
    scraped = (("scrape", "interval"),)
    shortest = FEWEST_READINGS * interval
    if workload.keep_warm < shortest:
        bound = f"must be at least {FEWEST_READINGS} scrape intervals ({write_duration(shortest)})"
        yield Finding((*at, "keep_warm"), bound, scraped, write_duration(workload.keep_warm))
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
        )


def _sources(at: Loc, workload: Workload, config: Config) -> Iterator[Finding]:
    pods, gateway, on_gpus = workload.pods, workload.gateway, workload.objectives.gpu_engine is not None
    if on_gpus and not config.gpus:
        yield Finding(
            (*at, "objectives", "gpu_engine"), "needs gpus: no page is asked that would show it", (("gpus",),)
        )
    if pods is None and gateway is None and not on_gpus:
        sources = ((*at, "pods"), (*at, "gateway"), (*at, "objectives", "gpu_engine"))
        yield Finding(at, "must have pods, a gateway, or objectives.gpu_engine: nothing says how busy it is", sources)
    if pods is not None:
        yield from _endpoint((*at, "pods"), pods)
        if workload.engine is None:
            yield Finding((*at, "engine"), "must be given with pods: it says how their pages are read")
        elif pods.kind not in {None, workload.engine}:
            bound = f"must be the engine ({workload.engine}) or left out"
            yield Finding((*at, "pods", "kind"), bound, ((*at, "engine"),), str(pods.kind))
    if gateway is not None:
        yield from _endpoint((*at, "gateway"), gateway)
        if gateway.kind == GPUS:
            yield Finding((*at, "gateway", "kind"), "must see requests", got=GPUS)
    if pods is not None and gateway is not None and _same_page(workload, pods, gateway):
        bound = "must be another page than pods: that one vanishes with the pods and sees no request at zero"
        parts = ("url", "urls", "dns", "port", "path", "scheme", "kind")
        pages = tuple((*at, page, part) for page in ("pods", "gateway") for part in parts)
        yield Finding((*at, "gateway"), bound, (*pages, (*at, "engine")))


def _same_page(workload: Workload, pods: Endpoint, gateway: Endpoint) -> bool:
    engine, kind = workload.engine or workload.gateway_kind, workload.gateway_kind
    if pods.dns is not None and pods.dns == gateway.dns:
        return pods.page_at(pods.dns, engine) == gateway.page_at(pods.dns, kind)
    return bool(set(pods.pages(engine)) & set(gateway.pages(kind)))


def _endpoint(at: Loc, endpoint: Endpoint) -> Iterator[Finding]:
    ways = ("url", "urls", "dns")
    given = [way for way in ways if getattr(endpoint, way) is not None]
    rests_on = tuple((*at, way) for way in ways)
    if not given:
        yield Finding(at, "must have one of url, urls, dns: it says where to ask", rests_on)
    elif len(given) > 1:
        yield Finding(at, f"must have only one of url, urls, dns: {' and '.join(given)} are given", rests_on)
    elif given != ["dns"]:
        for field in ("port", "path", "scheme"):
            value = getattr(endpoint, field)
            if value is not None:
                yield Finding((*at, field), f"goes with dns: write it into {given[0]}", rests_on, str(value))
    urls = endpoint.urls or ()
    for index, url in enumerate(urls):
        if url in urls[:index]:
            yield Finding((*at, "urls", index), f"must be another page than urls.{urls.index(url)}", got=url)
    if endpoint.access is not None:
        yield from _access((*at, "access"), endpoint.access, _is_plain(endpoint))


def _is_plain(endpoint: Endpoint) -> bool:
    """All its pages are asked over plain HTTP."""
    urls = (endpoint.url or "", *(endpoint.urls or ()))
    return endpoint.scheme != "https" and not any(url.startswith("https:") for url in urls)


def _access(at: Loc, access: Access, is_plain: bool) -> Iterator[Finding]:
    if access.bearer_file is not None and access.basic is not None:
        yield Finding((*at, "basic"), "must not stand beside bearer_file: a request carries one of them")
    tls = access.tls
    if tls is None:
        return
    if is_plain:
        yield Finding(
            (*at, "tls"),
            "is for https: the pages are asked over http",
            ((*at[:-1], "url"), (*at[:-1], "urls"), (*at[:-1], "scheme")),
        )
    if tls.certificate_file is not None and tls.key_file is None:
        yield Finding(
            (*at, "tls", "certificate_file"),
            "needs key_file: a certificate is shown with its key",
            ((*at, "tls", "key_file"),),
        )
    if tls.key_file is not None and tls.certificate_file is None:
        yield Finding(
            (*at, "tls", "key_file"),
            "needs certificate_file: a key proves nothing by itself",
            ((*at, "tls", "certificate_file"),),
        )
    if tls.insecure_skip_verify and tls.ca_file is not None:
        yield Finding(
            (*at, "tls", "insecure_skip_verify"),
            "must not be true beside ca_file: nothing would be verified by it",
            ((*at, "tls", "ca_file"),),
        )
