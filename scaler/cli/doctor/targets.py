"""Scrapes every target of a configuration and its cluster once, concurrently, with the daemon's discovery and parsers.

Worked example: for `gateway: {url: "http://epp:9090/metrics"}` the check is "gateway of ai/chat
http://epp:9090/metrics: epp, 1 queue: requests_held; 0.0 s old", or the reason why there is no page.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import isfinite

import aiohttp
import numpy as np

from exporter.attribution import named, owners_by_name
from exporter.catalog import Reader
from exporter.clock import Clock
from exporter.discovery import Discovery, Listing
from exporter.kubernetes.cache import Cluster
from exporter.model import Failure, FailureKind, Queue, Role, Samples, Target, without_user, without_user_info
from exporter.scrape.request import Pages, read
from exporter.sources.http import OK, HttpLimits, HttpPages
from exporter.sources.promql import Promql
from exporter.sources.redis import RedisPages
from exporter.textformat import Page, parse
from scaler.config import Config, DcgmExporter
from scaler.engine.engine_calls import endpoint_of
from scaler.workloads import Registry, ordered, take
from scaler.workloads.pods import cluster_owners
from scaler.workloads.targets import DiscoveryClients, Plans, TargetSource, discovery, places
from scaler.workloads.unmatched import unmatched_gpus

from .check import MOST_CLOCK_OFFSET_S, Check, check_clock, fail, ok, warn

# The daemon scrapes all targets of a large fleet; this command prints so many lines.
MOST_TARGETS = 200
MOST_CLOCKS = 20
CLOCK_TIMEOUT_S = 3.0
_REMEDIES = {
    FailureKind.REFUSED: "check that it runs, its address, and that a NetworkPolicy allows the connection",
    FailureKind.TIMEOUT: "check that it runs, scrape.timeout, and that a NetworkPolicy allows the connection",
    FailureKind.STATUS: "401 or 403: configure `access`; 404: check the path",
    FailureKind.TLS: "set access.tls.ca_file to its authority and access.tls.server_name to its name",
    FailureKind.CREDENTIALS: "mount the file readable for Tidegate's user",
    FailureKind.TOO_LARGE: "raise scrape.body_limit, or shorten the page",
    FailureKind.EMPTY: "exporters that reload and servers that have just started do this: try again in a minute",
    FailureKind.UNREADABLE: "check that the address is a metrics page and its `kind`: see `tidegate read`",
}


class _Scanner:
    """Parses without a cache: each page is read once."""

    def scan(self, body: bytes) -> Page:
        return parse(body)


async def examine(config: Config, cluster: Cluster | None, clock: Clock) -> list[Check]:
    """cluster: as listed; None without `kubernetes`."""
    http = HttpPages(HttpLimits(config.scrape.timeout, config.scrape.body_limit))
    promql = Promql(http)
    pages = RedisPages(promql, clock, lambda: config.scrape.timeout)
    registry = take(
        config, *((cluster.scaled_objects(), cluster.scalables(), cluster.hpas()) if cluster else ((), (), ()))
    )
    checks = [
        (fail if each.severity == "error" else warn)(f"object {each.ref}", f"{each.key}: {each.message}", "change it")
        for each in registry.object_errors
    ]
    sources = [each for each in places(config, registry.workloads) if cluster is not None or not _is_in_cluster(each)]
    lookers = DiscoveryClients(cluster, promql, pages)
    try:
        discoveries = [discovery(source, config, lookers) for source in sources]
        listings = await asyncio.gather(*(_refresh(each, clock.now()) for each in discoveries))
        for source, each, listing in zip(sources, discoveries, listings, strict=True):
            checks += _check_listing(source, each, listing)
        targets = list(dict.fromkeys(target for listing in listings if listing for target in listing.targets))
        slots = asyncio.Semaphore(config.scrape.concurrency)
        scraped = targets[:MOST_TARGETS]
        results = await asyncio.gather(*(_check_target(target, pages, slots, config, clock) for target in scraped))
        checks += [check for check, _ in results]
        responses = [samples for _, samples in results if samples is not None]
        checks += _check_unmatched(responses, config, registry, cluster)
        if len(targets) > MOST_TARGETS:
            skipped = f"{len(targets) - MOST_TARGETS} were not scraped: see /metrics of the daemon"
            checks.append(ok("more targets", skipped))
        calls = {each.key for each in registry.workloads if each.sleep_mode is not None and each.sleep_mode.calls}
        called = [target for target in scraped if target.role is Role.PODS and target.owner in calls]
        checks += await asyncio.gather(*(_check_sleep_mode(target, http) for target in called))
        checks += await _check_clocks(scraped, clock)
    finally:
        promql.close()
        await pages.close()
        await http.close()
    if not targets and not checks:
        checks.append(warn("targets", "none", "add some to the configuration, or set kubernetes: {}"))
    return checks


def _is_in_cluster(source: TargetSource) -> bool:
    page = source.page
    if isinstance(page, DcgmExporter):
        return True
    return page.target is not None or page.service_in(source.namespace) is not None


async def _refresh(source: Discovery, now: float) -> Listing | None:
    await source.refresh(now)
    return source.listing()


def _check_listing(source: TargetSource, discovered: Discovery, listing: Listing | None) -> list[Check]:
    """One check if there are no targets."""
    name = f"{source.role} of {source.owner}" if source.owner is not None else str(source.role)
    if listing is None:
        reason = getattr(discovered, "failure", None) or "the cluster does not have it, or may not be read"
        return [fail(name, f"its targets are unknown: {reason}", "check its name, and that it exists")]
    if listing.targets:
        return []
    match source.role:
        case Role.PODS:
            return [ok(name, "no pods now")]
        case Role.GATEWAY:
            remedy = "start the gateway: nothing else wakes the workload from zero, so it is not put to sleep"
            return [warn(name, "no ready address", remedy)]
    remedy = "install dcgm-exporter, or set kubernetes.dcgm_exporter: null on clusters without GPUs"
    return [warn(name, "no dcgm-exporter: GPUs are unknown, and idleness depends on requests alone", remedy)]


async def _check_target(
    target: Target, pages: Pages, slots: asyncio.Semaphore, config: Config, clock: Clock
) -> tuple[Check, Samples | None]:
    async with slots:
        body = await pages.fetch(target.url, target.access)
    now = clock.now()
    name = f"{target.role}{f' of {target.owner}' if target.owner else ''} {target.named}"
    outcome = body if isinstance(body, Failure) else read(body, Reader(target.kind), _Scanner(), now)
    if isinstance(outcome, Failure):
        remedy = _REMEDIES.get(outcome.kind, "see `tidegate read`")
        return fail(name, f"{outcome.kind}: {outcome.detail}", remedy), None
    return check_samples(name, outcome, now, target.max_age_s or config.fresh_for), outcome


async def _check_sleep_mode(target: Target, http: HttpPages) -> Check:
    """Whether an engine has the endpoints that `sleep_mode.calls` needs; nothing is put to sleep."""
    name = f"sleep mode of {target.owner} {target.named}"
    answer = await http.get(endpoint_of(target.url, "is_sleeping"), target.access)
    if isinstance(answer, Failure):
        return fail(name, f"{answer.kind}: {answer.detail}", _REMEDIES.get(answer.kind, "see the engine's log"))
    if answer.status != OK:
        remedy = "start vLLM with --enable-sleep-mode and VLLM_SERVER_DEV_MODE=1, or unset sleep_mode.calls"
        return fail(name, f"GET /is_sleeping: HTTP {answer.status} {answer.reason}".rstrip(), remedy)
    return ok(name, "its engine can be called")


def _check_unmatched(
    responses: Sequence[Samples], config: Config, registry: Registry, cluster: Cluster | None
) -> list[Check]:
    """A warning for each reason why GPUs match no workload."""
    plans = Plans(config).take(
        registry.workloads, ordered(registry), registry.tolerances, registry.jobs, registry.targets
    )
    owners = owners_by_name({plan.workload: plan.pod_pattern for plan in plans})
    if cluster is not None:
        owners = cluster_owners(cluster, registry.targets, owners)
        responses = [named(each, cluster) for each in responses]
    return [
        warn("GPUs without a workload", each.sentence, each.remedy)
        for each in unmatched_gpus(responses, owners, cluster)
    ]


def check_samples(name: str, samples: Samples, now: float, fresh_s: float) -> Check:
    """now: POSIX seconds. fresh_s: how long a sample is fresh."""
    quantities = [
        str(quantity)
        for column, quantity in enumerate(samples.quantities)
        if np.isfinite(samples.values[:, column]).any()
    ]
    if not quantities:
        remedy = "engines that have just started do this; if it persists, check its `kind`: see `tidegate read`"
        return warn(name, f"{samples.kind}: neither a queue nor a GPU", remedy)
    queues = sum(isinstance(subject, Queue) for subject in samples.subjects)
    counts = {"queue": queues, "GPU": len(samples.subjects) - queues}
    subjects = ", ".join(f"{count} {noun}{'s' if count > 1 else ''}" for noun, count in counts.items() if count)
    age_s = now - float(np.max(samples.at))
    result = f"{samples.kind}, {subjects}: {', '.join(quantities)}"
    if age_s > fresh_s and isfinite(age_s):
        remedy = "its exporter has stopped measuring, or its clock is behind: restart it, or synchronize it by NTP"
        return fail(name, f"{result}; {age_s:.0f} s old, stale after {fresh_s:.0f} s", remedy)
    if age_s < -MOST_CLOCK_OFFSET_S:
        remedy = "synchronize the clocks by NTP: samples in the future are rejected"
        return warn(name, f"{result}; {-age_s:.1f} s in the future", remedy)
    return ok(name, f"{result}; {max(0.0, age_s):.1f} s old")


async def _check_clocks(targets: Sequence[Target], clock: Clock) -> list[Check]:
    """Checks of the hosts with a wrong clock, by one request to each; one check if all are right."""
    hosts: dict[str, str] = {}
    for target in targets:
        if target.url.startswith(("http://", "https://")):
            hosts.setdefault(target.url.partition("//")[2].partition("/")[0], target.url)
    checked = list(hosts.items())[:MOST_CLOCKS]
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=CLOCK_TIMEOUT_S)) as session:
        checks = await asyncio.gather(
            *(_check_host_clock(without_user(f"//{host}")[2:], url, session, clock) for host, url in checked)
        )
    off = [check for check in checks if check is not None and check.status != "ok"]
    if off or not checked:
        return off
    return [ok("clocks of targets", f"{len(checked)} checked; none is off by more than 2 s")]


async def _check_host_clock(host: str, url: str, session: aiohttp.ClientSession, clock: Clock) -> Check | None:
    """Returns None if the host does not answer; the check of its target reports that."""
    sent_at = clock.now()
    try:
        # Nothing is sent, and only the date is read, so the certificate does not matter.
        async with session.get(without_user_info(url), allow_redirects=False, ssl=False) as response:
            return check_clock(host, response.headers.get("Date"), sent_at, clock.now())
    except (aiohttp.ClientError, OSError, ValueError):
        return None
