"""Where to ask, when a Prometheus has asked already: the sources its answer names, listed as targets.

Who should answer is who the server scrapes: a source is listed by its `up`, so a failed scrape (0) is a source that
does not answer, and not one that vanished. A source leaves the list when the server stopped scraping it more than
`max_age_s` ago.

An answer that names nobody is not an answer "nobody": it is also what a restarted server says, or one that was asked
with a mistyped selector. Nor does a server know everybody before it has scraped somebody twice. Then, and while there
is no answer, the last list stands for a while, then the list is unknown.

Worked example: `up` is 1 for chat-0 and 0 for chat-1. `listing()` has two targets; on the shelf lie the page of chat-0
and a `Failure` for chat-1. Half a minute after the server's last answer, with `keep_s` of 30, `listing()` is None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import inf
from typing import NamedTuple

from exporter.discovery import Listing
from exporter.model import Failure, FailureKind, Role, Target, WorkloadKey

from .answer import PromqlSeries
from .client import Promql
from .origin import UP, jobs_of, sources
from .pages import page_at
from .query import PromqlQuery, target_of

# As many as Prometheus itself returns for one series of a range query.
MOST_STEPS = 11_000
DUST = 1e-9  # of a step: 0.3 / 0.1 is a little less than 3


class HistoryFrame(NamedTuple):
    """What the pages said at one moment (POSIX seconds). Who was not there, or failed, has no page."""

    at: float
    pages: Mapping[Target, bytes]


class _Look(NamedTuple):
    """One answer's list, with all pages of it, and the server's jobs that scrape them."""

    pages: Mapping[Target, bytes | Failure]
    jobs: frozenset[str]


class PromqlTargets:
    """The sources of one query; each look at the server brings the list and all their pages."""

    def __init__(self, client: Promql, query: PromqlQuery, *, keep_s: float) -> None:
        """`keep_s`: seconds for which the last list stands while the server does not answer."""
        self.owner: WorkloadKey | None = query.owner if query.role is Role.PODS else None
        self.failure: str | None = None
        self._client, self._query, self._keep = client, query, keep_s
        self._listing: Listing | None = None
        self._laid: Mapping[str, bytes | Failure] = {}
        # A job whose every target fails has no series by which to know it.
        self._jobs: frozenset[str] = frozenset()
        self._answered_at = -inf

    def listing(self) -> Listing | None:
        return self._listing

    async def refresh(self, now: float) -> None:
        query = self._query
        look = await self._client.ask(query, query.max_age_s, partial(_look, query=query, jobs=self._jobs))
        if isinstance(look, Failure):
            self._unanswered(look, now)
            return
        self.failure, self._answered_at, self._jobs = None, now, look.jobs
        self._listing = Listing(tuple(look.pages))
        self._lay({target.url: page for target, page in look.pages.items()})

    def _unanswered(self, failure: Failure, now: float) -> None:
        self.failure = f"{self._query.base}: {failure.detail}"
        self._lay(dict.fromkeys(self._laid, failure))
        if now - self._answered_at > self._keep:
            self._listing = None

    def _lay(self, pages: Mapping[str, bytes | Failure]) -> None:
        shelf = self._client.shelf
        for url, page in self._laid.items():
            if shelf.get(url) is page:  # else it is of the discovery that has replaced this one
                del shelf[url]
        shelf.update(pages)
        self._laid = pages

    def __del__(self) -> None:
        """What a configuration does not ask for any more must not stay on the shelf."""
        self._lay({})

    async def history(self, since: float, until: float, step: float) -> tuple[HistoryFrame, ...] | Failure:
        """What the pages said at `since`, `since + step` … up to `until` (POSIX seconds), oldest first.

        A past too large for one answer is asked for in halves. ValueError if there are more than `MOST_STEPS` steps.
        """
        if not (step > 0.0 and since <= until and (until - since) / step <= MOST_STEPS):
            raise ValueError(f"history: must be 0..{MOST_STEPS} steps, got {since:g} to {until:g} by {step:g} s")
        moments = [since + step * place for place in range(int((until - since) / step + DUST) + 1)]
        return await self._frames(moments)

    async def _frames(self, moments: Sequence[float]) -> tuple[HistoryFrame, ...] | Failure:
        query, window = self._query, moments[-1] - moments[0] + self._query.max_age_s
        film = partial(_film, query=query, jobs=self._jobs, moments=moments)
        frames = await self._client.ask(query, window, film, at=moments[-1])
        if not isinstance(frames, Failure) or frames.kind is not FailureKind.TOO_LARGE or len(moments) == 1:
            return frames
        half = len(moments) // 2
        earlier = await self._frames(moments[:half])
        if isinstance(earlier, Failure):
            return earlier
        later = await self._frames(moments[half:])
        return later if isinstance(later, Failure) else earlier + later


def _look(series: Sequence[PromqlSeries], query: PromqlQuery, jobs: frozenset[str]) -> _Look | Failure:
    """The pages of the sources in an answer, as of its end. `jobs`: those already known."""
    jobs |= jobs_of(series)
    ups = [one for one in series if one.name == UP and one.labels.get("job", "") in jobs]
    clocks = ups or [one for one in series if one.name != UP]
    if not clocks:
        words = f"no series of kind {query.kind} within {query.max_age_s:g} s"
        return Failure(FailureKind.EMPTY, f"{words} (selector: {query.selector or 'none'})")
    if all(len(one.times) == 1 for one in clocks):
        words = f"nobody was scraped twice within {query.max_age_s:g} s (max_age)"
        return Failure(FailureKind.EMPTY, f"{words}: the server has just begun, or scrapes too seldom")
    pages: dict[Target, bytes | Failure] = {}
    for source, scrapes in sources(series, query.role, jobs).items():
        page = page_at(scrapes, -inf, inf)
        if page is not None:
            pages[target_of(query, source)] = page
    return _Look(pages, jobs) if pages else Failure(FailureKind.EMPTY, "everybody the server scraped has left")


def _film(
    series: Sequence[PromqlSeries], query: PromqlQuery, jobs: frozenset[str], moments: Sequence[float]
) -> tuple[HistoryFrame, ...]:
    found = sources(series, query.role, jobs | jobs_of(series))
    named = [(target_of(query, source), scrapes) for source, scrapes in found.items()]
    # Steps are often shorter than the server's interval: a page that stands for several of them is kept once.
    known: dict[bytes, bytes] = {}
    frames = []
    for at in moments:
        seen = ((target, page_at(scrapes, at - query.max_age_s, at)) for target, scrapes in named)
        pages = {target: known.setdefault(page, page) for target, page in seen if isinstance(page, bytes)}
        frames.append(HistoryFrame(at, pages))
    return tuple(frames)
