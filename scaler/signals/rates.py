"""Computes the rates of a target's counters from two responses: arriving requests, tokens, times between tokens.

A rate holds from one response to the next, so a sum over targets that are scraped at different moments is right at any
moment. Requests arrive where their number rises: finished ones and those in hand together. At a gateway these are the
requests that it holds: what it passes on arrives at an engine, and has left the gateway. Of an engine whose requests in
hand are older than its counters, they are those with a first token and those that wait: with finished ones, the count
of requests without a first token would creep up to all in hand.

An engine may count a request that its client leaves nowhere but among its first tokens. Of requests with a first token,
those that are neither finished nor running were left. This is a lower bound while prompts of running ones are read, so
its largest value counts. Without it, such a request would be subtracted again from the arrivals when it leaves.

Tokens of prompts that a cache had are no work. An engine that does not tell them apart counts as computing all of them.

Rates of an engine are known together, or none of them is; those of the times between tokens for themselves, and so are
those of each latency of the SLO: an engine that exposes no counters of tokens may have them alone. Of such an engine
arriving and finished requests are known too, if it exposes requests in hand and counts finished ones. A histogram is
split at the SLO into four counters (`exporter.histogram`); if one of them has fallen, the engine was restarted and all
four are counted from 0. At another SLO than before they are other counters, so their rates are not known for one
response.

Worked example: in 5 s an engine finishes 10 requests and has 4 more in hand than before: 2.8 arrive per second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan, nan
from typing import NamedTuple

from exporter.histogram import Split
from exporter.model import Floats, Quantity
from scaler.policy.capacity import WorkRate

from .slots import Column

_COUNTERS = {
    WorkRate.FIRST_TOKENS: Quantity.FIRST_TOKENS,
    WorkRate.PROMPT: Quantity.TOKENS_PROMPT,
    WorkRate.GENERATED: Quantity.TOKENS_GENERATED,
    WorkRate.COMPUTED: Quantity.TOKENS_COMPUTED,
    WorkRate.GAPS: Quantity.ITL_COUNT,
    WorkRate.GAP_SECONDS: Quantity.ITL_SECONDS,
}
# Without these there is no size: the mean prompt is tokens read over first tokens.
_NEEDED = (Quantity.TOKENS_PROMPT, Quantity.TOKENS_GENERATED, Quantity.FIRST_TOKENS)
# Of a slot's `work`: POSIX seconds of the response, and the limits that its histograms were split at. The other columns
# are those of WorkRate; those of a latency have the four counters of its split.
AT = len(WorkRate)
TTFT_LIMIT = AT + 1  # and that of the time per output token
_SPLIT, _UNSPLIT = len(Split._fields), (nan,) * len(Split._fields)
# Interpolated counters are rounded: they may fall by a part in 10**15, and a restart is a fall by whole observations.
_ROUNDED = 1e-12


class SloSplits(NamedTuple):
    """The latencies of one response at the SLO of its workload.

    ttft_s, itl_s: the SLO, seconds; NaN without one. ttft, tpot: None if the response has no buckets near the SLO.
    """

    ttft_s: float = nan
    itl_s: float = nan
    ttft: Split | None = None
    tpot: Split | None = None


NO_SPLITS = SloSplits()


def of_engine(
    values: Floats,
    sums: Mapping[Quantity, float],
    before: Floats,
    at: float,
    splits: SloSplits = NO_SPLITS,
    *,
    lags: bool,
    forgets: bool,
) -> None:
    """Writes the rates of an engine's response into `values`, and the response into `before`.

    values: shape (slots.WIDTH,), with the requests in hand. before: shape (slots.WORK_WIDTH,); NaN: none.
    at: POSIX seconds of the response. lags: its requests in hand may be seconds older than its counters. forgets: its
    finished requests leave out those that their clients left.
    """
    failed = sums.get(Quantity.REQUESTS_FAILED, nan)
    failed = 0.0 if isnan(failed) else failed
    waiting, running = float(values[Column.WAITING]), float(values[Column.RUNNING])
    finished, in_hand = sums.get(Quantity.REQUESTS_FINISHED, nan) + failed, waiting + running
    if forgets:
        first_tokens = sums.get(Quantity.FIRST_TOKENS, nan)
        finished = _with_left(finished, first_tokens - running + failed, before, first_tokens)
    is_counted = not (isnan(finished + in_hand) or any(isnan(sums.get(each, nan)) for each in _NEEDED))
    # Lists: single numbers of arrays take ten times as long.
    counters = [nan] * WorkRate.TTFT
    counters[WorkRate.ARRIVED], counters[WorkRate.FINISHED] = waiting if lags else in_hand, finished
    for rate, quantity in _COUNTERS.items():
        counters[rate] = sums.get(quantity, nan)
    last, elapsed = before[: WorkRate.TTFT].tolist(), at - float(before[AT])
    before[: WorkRate.TTFT], before[AT] = counters, at
    rates = [_rise(*each, elapsed) for each in zip(counters, last, strict=True)]
    gone = rates[WorkRate.FIRST_TOKENS if lags else WorkRate.FINISHED]
    rates[WorkRate.ARRIVED] = gone + _change(counters[WorkRate.ARRIVED], last[WorkRate.ARRIVED], elapsed)
    if isnan(rates[WorkRate.COMPUTED]):  # an upper bound: no engine computes more than its prompts
        rates[WorkRate.COMPUTED] = rates[WorkRate.PROMPT]
    # A request that is counted and its tokens that are not would change the means.
    gaps = rates[WorkRate.GAPS :]
    if isnan(sum(rates[: WorkRate.GAPS])):
        requests = rates[WorkRate.ARRIVED], rates[WorkRate.FINISHED]
        rates = [nan] * WorkRate.GAPS + (gaps if not is_counted else [nan] * len(gaps))
        if not is_counted and not isnan(sum(requests)):
            rates[WorkRate.ARRIVED], rates[WorkRate.FINISHED] = requests
    if isnan(sum(gaps)):
        rates[WorkRate.GAPS :] = [nan] * len(gaps)
    values[Column.UNCOUNTED] = not is_counted
    values[Column.RATES : Column.RATES + WorkRate.TTFT] = rates
    if splits is not NO_SPLITS:
        _of_latencies(values, before, splits, elapsed)
    elif not isnan(before[TTFT_LIMIT]):  # the SLO was removed; its counters are old when it returns
        before[TTFT_LIMIT:] = nan


def of_gateway(values: Floats, before: Floats, at: float) -> None:
    """As `of_engine`, of the requests that a gateway holds."""
    held, elapsed = float(values[Column.HELD]), at - float(before[AT])
    values[Column.RATES + WorkRate.ARRIVED] = _change(held, float(before[WorkRate.ARRIVED]), elapsed)
    before[WorkRate.ARRIVED], before[AT] = held, at


def _of_latencies(values: Floats, before: Floats, splits: SloSplits, elapsed: float) -> None:
    """Writes the four rates of each latency: all observations, and the late ones as estimated, at least and at most."""
    # Lists: of so few numbers they take a tenth of the time of arrays.
    last, limits = before[WorkRate.TTFT : AT].tolist(), before[TTFT_LIMIT:].tolist()
    now = [*(splits.ttft or _UNSPLIT), *(splits.tpot or _UNSPLIT)]
    before[WorkRate.TTFT : AT], before[TTFT_LIMIT:] = now, (splits.ttft_s, splits.itl_s)
    if elapsed > 0.0:
        same = (limits[0] == splits.ttft_s, limits[1] == splits.itl_s)
        both = (slice(0, _SPLIT), slice(_SPLIT, None))
        rates = [
            _late(now[of], last[of], elapsed) if is_same else _UNSPLIT for of, is_same in zip(both, same, strict=True)
        ]
        values[Column.RATES + WorkRate.TTFT :] = [*rates[0], *rates[1]]


def _late(now: Sequence[float], last: Sequence[float], elapsed: float) -> tuple[float, float, float, float]:
    """The rates of one latency from the counters of its splits; NaN where a split is."""
    rises = [after - before for after, before in zip(now, last, strict=True)]
    if min(rises) < -_ROUNDED * sum(now):
        rises = list(now)  # restarted at 0
    within, likely_within, likely_late, late = (max(rise, 0.0) / elapsed for rise in rises)
    most = likely_within + likely_late + late
    return within + most, likely_late + late, late, most


def _with_left(finished: float, at_least: float, before: Floats, first_tokens: float) -> float:
    """Requests that have ended, with those that were left. NaN: unknown.

    at_least: those that have a first token and do not run, and those that failed.
    """
    ended = max(finished, at_least)  # the first, if the second is NaN
    is_same_process = first_tokens >= before[WorkRate.FIRST_TOKENS]
    return max(ended, float(before[WorkRate.FINISHED])) if is_same_process else ended


def _rise(value: float, last: float, elapsed: float) -> float:
    """A counter's rise per second. One that has fallen was restarted at 0. NaN: unknown, or the first response."""
    if not elapsed > 0.0 or isnan(last):
        return nan
    return (value - last if value >= last else value) / elapsed


def _change(value: float, last: float, elapsed: float) -> float:
    return (value - last) / elapsed if elapsed > 0.0 else nan
