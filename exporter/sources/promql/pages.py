"""One source's page as it was at one moment: the newest sample of each line that was still on it.

A page is whole or it is a `Failure`. A scrape that failed (`up` is 0) is no page; a pod of two addresses of which one
failed has none either. Several scrapes of one address (two jobs, an HA pair) are one page, seen more than once.

A range vector does not say that a series has ended, it merely stops. So a line that two later scrapes of its target
passed by is gone. Not one: remote write sends series apart from each other, and the newest may be on its way.

Worked example: `up` is 1 at 10, 20, 30 and 40 s, waiting was 3 at 10 and 20, running 1 at each. At 40 s the page has
`running 1.0 40000` alone; at 30 s it has both, waiting as of 20 s.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from math import isnan
from typing import NamedTuple

from exporter.model import Failure, FailureKind

from .origin import Line, Scraped
from .printed import line

MISSED = 2  # later scrapes without a line, after which it is gone


class _PageShare(NamedTuple):
    """One scrape's share of a page: its lines as printed, and when the newest was measured."""

    lines: list[bytes]
    at: float


def page_at(scrapes: Sequence[Scraped], after: float, until: float) -> bytes | Failure | None:
    """What the source said in the time (after, until], POSIX seconds, as of its end; None if it was not there."""
    answers: dict[str, list[_PageShare]] = {}
    down: dict[str, str] = {}
    for scrape in scrapes:
        verdict = _up(scrape, after, until)
        if verdict == 0.0:
            down.setdefault(scrape.instance, scrape.name)
        elif verdict is not None:
            seen = _seen(scrape, after, until)
            if scrape.up is not None or seen.lines:
                answers.setdefault(scrape.instance, []).append(seen)
    if not answers and not down:
        return None
    for instance, name in down.items():
        if instance not in answers:
            return Failure(FailureKind.REFUSED, f"`up` is 0: the server cannot scrape it ({name})")
    page = b"".join(text for seen in answers.values() for text in max(seen, key=_fullness).lines)
    return page or Failure(FailureKind.EMPTY, "the server scrapes it, and finds no family of this kind on its page")


def _fullness(seen: _PageShare) -> tuple[int, float]:
    return len(seen.lines), seen.at


def _up(scrape: Scraped, after: float, until: float) -> float | None:
    """The newest `up`; 1 where the answer has none of this target; None if the target has left."""
    if scrape.up is None:
        return 1.0
    newest = _newest(scrape.up.times, after, until)
    # `up` is 0 or 1: a NaN can only be the mark of its end, which VictoriaMetrics shows.
    return None if newest is None or isnan(scrape.up.values[newest]) else scrape.up.values[newest]


def _seen(scrape: Scraped, after: float, until: float) -> _PageShare:
    newest = [(one, place) for one in scrape.lines if (place := _newest(one.times, after, until)) is not None]
    scraped_at = _scraped_at(scrape, newest)
    kept = [(one, place) for one, place in newest if not _is_gone(one.times[place], scraped_at, until)]
    at = max((one.times[place] for one, place in kept), default=after)
    return _PageShare([line(one.head, one.values[place], one.times[place]) for one, place in kept], at)


def _scraped_at(scrape: Scraped, newest: Sequence[tuple[Line, int]]) -> tuple[float, ...]:
    """When the target was scraped: its `up` says, or else the line that is the most up to date."""
    if scrape.up is not None:
        return scrape.up.times
    return max((one.times[: place + 1] for one, place in newest), key=lambda times: (times[-1], len(times)), default=())


def _is_gone(at: float, scraped_at: Sequence[float], until: float) -> bool:
    """Whether a line last seen `at` one of the scrapes was missing from the later ones.

    A line with a time of its own (an exporter's timestamps, another server's scrape) is of none of them, and stays.
    """
    place = bisect_left(scraped_at, at)
    if place == len(scraped_at) or scraped_at[place] != at:
        return False
    return bisect_right(scraped_at, until) - place > MISSED


def _newest(times: Sequence[float], after: float, until: float) -> int | None:
    place = bisect_right(times, until) - 1
    return place if place >= 0 and times[place] > after else None
