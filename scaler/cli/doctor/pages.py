"""Every page that a configuration names, and that its cluster adds: asked once, at the same time, as the daemon asks.

Who finds pages and who fetches and reads them are the daemon's own rooms, so that what is said here is what it sees.

Worked example: of `gateway: {url: "http://epp:9090/metrics"}` it is "gateway of ai/chat http://epp:9090/metrics: epp, 1
queue: requests_held; read 0.0 s after it was measured", or why there is no page.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import isfinite

import aiohttp
import numpy as np

from exporter.catalog import Reader
from exporter.clock import Clock
from exporter.discovery import Discovery, Listing
from exporter.kubernetes.cache import Cluster
from exporter.model import Failure, FailureKind, Queue, Role, Samples, Target, without_user, without_user_info
from exporter.scrape.request import Pages, read
from exporter.sources.http import HttpLimits, HttpPages
from exporter.sources.promql import Promql
from exporter.sources.redis import RedisPages
from exporter.textformat import Page, parse
from scaler.config import Config, DcgmExporter
from scaler.workloads import take
from scaler.workloads.targets import Lookers, TargetSource, discovery, places

from . import clocks
from .check import Check, fail, ok, warn

# A fleet's pages are the daemon's to ask; a person reads so many lines.
MOST_PAGES = 200
MOST_CLOCKS = 20
_DO = {
    FailureKind.REFUSED: "is it up, is the address right, and does a NetworkPolicy let Tidegate through?",
    FailureKind.TIMEOUT: "is it up, and does a NetworkPolicy let Tidegate through? scrape.timeout is how long it has",
    FailureKind.STATUS: "401 and 403: give it `access`; 404: is the path right?",
    FailureKind.TLS: "name its authority in access.tls.ca_file, and its name in access.tls.server_name",
    FailureKind.CREDENTIALS: "mount the file, and let Tidegate's user read it",
    FailureKind.TOO_LARGE: "raise scrape.body_limit, or have the page print less",
    FailureKind.EMPTY: "an exporter that reloads answers so, and a server that has just begun: ask again in a minute",
    FailureKind.UNREADABLE: "is it the address of a metrics page, and its `kind` right? See `tidegate read`",
}


class _Scanner:
    """Each page is read once: there is nothing to remember."""

    def scan(self, body: bytes) -> Page:
        return parse(body)


async def examine(config: Config, cluster: Cluster | None, clock: Clock) -> list[Check]:
    """cluster: what is there, as it was listed; None where none is asked."""
    http = HttpPages(HttpLimits(config.scrape.timeout, config.scrape.body_limit))
    promql = Promql(http)
    pages = RedisPages(promql, clock, lambda: config.scrape.timeout)
    census = take(
        config, *((cluster.scaled_objects(), cluster.scalables(), cluster.hpas()) if cluster else ((), (), ()))
    )
    checks = [
        (fail if each.severity == "error" else warn)(f"object {each.ref}", f"{each.key}: {each.message}", "change it")
        for each in census.troubles
    ]
    wanted = [place for place in places(config, census.workloads) if cluster is not None or not _in_cluster(place)]
    lookers = Lookers(cluster, promql, pages)
    try:
        found = [(place, discovery(place, config, lookers)) for place in wanted]
        listings = await asyncio.gather(*(_listed(each, clock.now()) for _, each in found))
        for (place, looker), listing in zip(found, listings, strict=True):
            checks += _of_listing(place, looker, listing)
        targets = list(dict.fromkeys(target for listing in listings if listing for target in listing.targets))
        turns = asyncio.Semaphore(config.scrape.concurrency)
        asked = targets[:MOST_PAGES]
        checks += await asyncio.gather(*(_asked(target, pages, turns, config, clock) for target in asked))
        if len(targets) > MOST_PAGES:
            checks.append(
                ok("more pages", f"{len(targets) - MOST_PAGES} were not asked: /metrics of the daemon has all")
            )
        checks += await _clocks(asked, clock)
    finally:
        promql.close()
        await pages.close()
        await http.close()
    if not targets and not checks:
        checks.append(warn("pages", "none: nothing to read", "name some in the configuration, or set kubernetes: {}"))
    return checks


def _in_cluster(place: TargetSource) -> bool:
    page = place.page
    if isinstance(page, DcgmExporter):
        return True
    return page.target is not None or page.service_in(place.namespace) is not None


async def _listed(looker: Discovery, now: float) -> Listing | None:
    await looker.refresh(now)
    return looker.listing()


def _of_listing(place: TargetSource, looker: Discovery, listing: Listing | None) -> list[Check]:
    """What a list that brings no pages says."""
    name = f"{place.role} of {place.owner}" if place.owner is not None else str(place.role)
    if listing is None:
        why = getattr(looker, "failure", None) or "the cluster does not say which there are, or has no such thing"
        return [fail(name, f"where its pages are is not known: {why}", "is the name right, and is it there?")]
    if listing.targets:
        return []
    match place.role:
        case Role.PODS:
            return [ok(name, "no pod to ask now")]
        case Role.GATEWAY:
            do = "start the gateway: without it nothing would wake a workload from zero, so it is not put to sleep"
            return [warn(name, "no ready address", do)]
    do = "install dcgm-exporter, or set kubernetes.dcgm_exporter: null where there are no GPUs to see"
    return [warn(name, "no dcgm-exporter is there: no GPU is seen, and idleness rests on requests alone", do)]


async def _asked(target: Target, pages: Pages, turns: asyncio.Semaphore, config: Config, clock: Clock) -> Check:
    async with turns:
        body = await pages.fetch(target.url, target.access)
    now = clock.now()
    name = f"{target.role}{f' of {target.owner}' if target.owner else ''} {without_user(target.url)}"
    outcome = body if isinstance(body, Failure) else read(body, Reader(target.kind), _Scanner(), now)
    if isinstance(outcome, Failure):
        return fail(name, f"{outcome.kind}: {outcome.detail}", _DO.get(outcome.kind, "see the words of the page"))
    return of_samples(name, outcome, now, target.max_age_s or config.fresh_for)


def of_samples(name: str, samples: Samples, now: float, fresh_s: float) -> Check:
    """What a page says. now: POSIX seconds. fresh_s: for so long a reading is believed."""
    known = [
        str(quantity)
        for column, quantity in enumerate(samples.quantities)
        if np.isfinite(samples.values[:, column]).any()
    ]
    if not known:
        do = "an engine that has just started answers so; if it stays, is its `kind` right? See `tidegate read`"
        return warn(name, f"{samples.kind}: nothing on it is a queue or a GPU", do)
    queues = sum(isinstance(subject, Queue) for subject in samples.subjects)
    counts = {"queue": queues, "GPU": len(samples.subjects) - queues}
    whose = ", ".join(f"{count} {word}{'s' if count > 1 else ''}" for word, count in counts.items() if count)
    age = now - float(np.max(samples.at))
    said = f"{samples.kind}, {whose}: {', '.join(known)}"
    if age > fresh_s and isfinite(age):
        do = "whoever prints it has stopped measuring, or its clock is behind: restart it, or set its clock by NTP"
        return fail(name, f"{said}; {age:.0f} s old, and believed for {fresh_s:.0f} s", do)
    if age < -clocks.MOST_S:
        do = "set the clocks by NTP: what is of the future is not believed"
        return warn(name, f"{said}; measured {-age:.1f} s in our future", do)
    return ok(name, f"{said}; {max(0.0, age):.1f} s old")


async def _clocks(targets: Sequence[Target], clock: Clock) -> list[Check]:
    """Of the hosts of these pages, one question each. Only those that are off are worth a line."""
    hosts: dict[str, str] = {}
    for target in targets:
        if target.url.startswith(("http://", "https://")):
            hosts.setdefault(target.url.partition("//")[2].partition("/")[0], target.url)
    some = list(hosts.items())[:MOST_CLOCKS]
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=3.0)) as session:
        checks = await asyncio.gather(
            *(_clock(without_user(f"//{host}")[2:], url, session, clock) for host, url in some)
        )
    off = [check for check in checks if check is not None and check.status != "ok"]
    if off or not some:
        return off
    return [ok("clocks of pages", f"{len(some)} asked; none that says its time is off by more than 2 s")]


async def _clock(host: str, url: str, session: aiohttp.ClientSession, clock: Clock) -> Check | None:
    """None: it did not answer, and that is said where its page is asked."""
    asked_at = clock.now()
    try:
        # Nothing is sent and nothing but the date is read, so whose certificate it is does not matter.
        async with session.get(without_user_info(url), allow_redirects=False, ssl=False) as response:
            return clocks.check(host, response.headers.get("Date"), asked_at, clock.now())
    except (aiohttp.ClientError, OSError, ValueError):
        return None
