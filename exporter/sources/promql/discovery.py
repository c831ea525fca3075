"""Lists the targets in the responses of a server with Prometheus' query API, and reads their history.

A target is listed by its `up`: a failed scrape (0) is a target that does not answer, not one that is gone. A target
leaves the list when the server's last scrape of it is older than `max_age_s`.

An empty response is not "no targets": a restarted server gives it, and one with a mistyped selector. A server also does
not know all targets before it has scraped one twice. In these cases, and without a response, the last list stays valid
for a while; then it is unknown.

Worked example: `up` is 1 for chat-0 and 0 for chat-1. `listing()` has two targets, and `Promql.pages` the page of
chat-0 and a `Failure` for chat-1. With `keep_s` of 30, half a minute after the last response `listing()` is None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import inf
from typing import NamedTuple

from exporter.discovery import Listing
from exporter.model import Failure, FailureKind, Role, Target, WorkloadKey

from .client import Promql, PromqlQuery, target_of
from .decode import PromqlSeries
from .pages import UP, group_by_origin, jobs_of, page_at

# The limit of Prometheus for one series of a range query.
MOST_STEPS = 11_000
ROUNDING_ERROR = 1e-9  # of a step: 0.3 / 0.1 is a little less than 3


class HistoryFrame(NamedTuple):
    """The pages at one moment (POSIX seconds). A target that failed or did not exist has no page."""

    at: float
    pages: Mapping[Target, bytes]


class _Response(NamedTuple):
    """The pages of one response, and the server's jobs that scrape them."""

    pages: Mapping[Target, bytes | Failure]
    jobs: frozenset[str]


class PromqlTargets:
    """Lists the targets of one query. Each refresh stores all their pages."""

    def __init__(self, client: Promql, query: PromqlQuery, *, keep_s: float) -> None:
        """keep_s: seconds for which the last list stays valid without a response."""
        self.owner: WorkloadKey | None = query.owner if query.role is Role.PODS else None
        self.failure: str | None = None
        self._client, self._query, self._keep_s = client, query, keep_s
        self._listing: Listing | None = None
        self._stored: Mapping[str, bytes | Failure] = {}
        # Kept, because a job of which every target fails has no other series than `up`.
        self._jobs: frozenset[str] = frozenset()
        self._answered_at = -inf

    def listing(self) -> Listing | None:
        return self._listing

    async def refresh(self, now: float) -> None:
        query = self._query
        convert = partial(_convert, query=query, jobs=self._jobs)
        response = await self._client.query(query, query.max_age_s, convert)
        if isinstance(response, Failure):
            self._fail(response, now)
            return
        self.failure, self._answered_at, self._jobs = None, now, response.jobs
        self._listing = Listing(tuple(response.pages))
        self._store({target.url: page for target, page in response.pages.items()})

    def _fail(self, failure: Failure, now: float) -> None:
        self.failure = f"{self._query.base}: {failure.detail}"
        self._store(dict.fromkeys(self._stored, failure))
        if now - self._answered_at > self._keep_s:
            self._listing = None

    def _store(self, pages: Mapping[str, bytes | Failure]) -> None:
        stored = self._client.pages
        for url, page in self._stored.items():
            if stored.get(url) is page:  # else it is of the discovery that has replaced this one
                del stored[url]
        stored.update(pages)
        self._stored = pages

    def __del__(self) -> None:
        """Pages that left the configuration must not stay stored."""
        self._store({})

    async def history(self, since: float, until: float, step_s: float) -> tuple[HistoryFrame, ...] | Failure:
        """The pages at `since`, `since + step_s` … up to `until` (POSIX seconds), oldest first.

        A time too long for one response is queried in halves. Raises ValueError for more than `MOST_STEPS` steps.
        """
        if not (step_s > 0.0 and since <= until and (until - since) / step_s <= MOST_STEPS):
            raise ValueError(f"history: must be 0..{MOST_STEPS} steps, got {since:g} to {until:g} by {step_s:g} s")
        moments = [since + step_s * i for i in range(int((until - since) / step_s + ROUNDING_ERROR) + 1)]
        return await self._frames(moments)

    async def _frames(self, moments: Sequence[float]) -> tuple[HistoryFrame, ...] | Failure:
        query, window_s = self._query, moments[-1] - moments[0] + self._query.max_age_s
        convert = partial(_convert_history, query=query, jobs=self._jobs, moments=moments)
        frames = await self._client.query(query, window_s, convert, at=moments[-1])
        if not isinstance(frames, Failure) or frames.kind is not FailureKind.TOO_LARGE or len(moments) == 1:
            return frames
        half = len(moments) // 2
        earlier = await self._frames(moments[:half])
        if isinstance(earlier, Failure):
            return earlier
        later = await self._frames(moments[half:])
        return later if isinstance(later, Failure) else earlier + later


def _convert(series: Sequence[PromqlSeries], query: PromqlQuery, jobs: frozenset[str]) -> _Response | Failure:
    """The pages as of the end of a response. jobs: of earlier responses."""
    jobs |= jobs_of(series)
    ups = [one for one in series if one.name == UP and one.labels.get("job", "") in jobs]
    clocks = ups or [one for one in series if one.name != UP]
    if not clocks:
        reason = f"no series of kind {query.kind} within {query.max_age_s:g} s"
        return Failure(FailureKind.EMPTY, f"{reason} (selector: {query.selector or 'none'})")
    if all(len(one.times) == 1 for one in clocks):
        reason = f"no target was scraped twice within {query.max_age_s:g} s (max_age)"
        return Failure(FailureKind.EMPTY, f"{reason}: the server has just started, or its scrape interval is too long")
    pages: dict[Target, bytes | Failure] = {}
    for origin, targets in group_by_origin(series, query.role, jobs).items():
        page = page_at(targets, -inf, inf)
        if page is not None:
            pages[target_of(query, origin)] = page
    return _Response(pages, jobs) if pages else Failure(FailureKind.EMPTY, "the server no longer scrapes any target")


def _convert_history(
    series: Sequence[PromqlSeries], query: PromqlQuery, jobs: frozenset[str], moments: Sequence[float]
) -> tuple[HistoryFrame, ...]:
    found = group_by_origin(series, query.role, jobs | jobs_of(series))
    targets = [(target_of(query, origin), scraped) for origin, scraped in found.items()]
    # Steps are often shorter than the server's scrape interval: a page of several steps is stored once.
    unique: dict[bytes, bytes] = {}
    frames = []
    for at in moments:
        found_pages = ((target, page_at(scraped, at - query.max_age_s, at)) for target, scraped in targets)
        pages = {target: unique.setdefault(page, page) for target, page in found_pages if isinstance(page, bytes)}
        frames.append(HistoryFrame(at, pages))
    return tuple(frames)
