r"""Sorts series by the target that exposed them, and prints each target's page as it was at one moment.

A server adds labels to every series of a target (job, instance, and those of its discovery) and puts the same ones on
that target's `up`. So the labels of `up` are not the page's. Where the page had a label of the same name, the server
either renamed the page's to `exported_…` (honor_labels: false) or dropped its own (true). Without an `up` only the
usual names count as the server's.

Worked example: beside `up{job="dcgm",instance="10.0.0.9:9400",namespace="gpu",pod="dcgm-exporter-x"}` there is
`DCGM_FI_DEV_GPU_UTIL{job="dcgm",instance="10.0.0.9:9400",namespace="gpu",pod="dcgm-exporter-x",UUID="GPU-1",
exported_namespace="ai",exported_pod="chat-0"}`: it is `DCGM_FI_DEV_GPU_UTIL{UUID="GPU-1",namespace="ai",pod="chat-0"}`
on the page of `SeriesOrigin(None, "10.0.0.9:9400")`. A GPU without a pod has no `exported_pod`, and loses `pod` too.

A page is complete or it is a `Failure`. A failed scrape (`up` is 0) has no page, nor has a pod if the scrape of one of
its two addresses failed. Several scrapes of one address (two jobs, an HA pair) are one page.

A range vector does not mark the end of a series. So a line is dropped that two later scrapes of its target did not
have; not after one, because remote write sends series separately, and the newest sample may be on its way. Example:
`up` is 1 at 10, 20, 30 and 40 s, waiting was 3 at 10 and 20, running 1 at each. At 40 s the page has `running 1.0
40000` alone; at 30 s it has both, waiting as of 20 s.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Mapping, Sequence
from math import isnan
from typing import NamedTuple

from exporter.model import Failure, FailureKind, PodKey, Role

from .decode import PromqlSeries

UP = "up"
EXPORTED = "exported_"
# These labels of a page are kept or dropped together: a namespace alone may be equal by chance.
OWNER_LABELS = ("namespace", "pod", "container")
# Labels that prometheus-operator and similar tools add to every series, and by which HA pairs are distinguished.
USUAL_LABELS = ("job", "instance", "endpoint", "service", "prometheus", "prometheus_replica")
# The second pair is of the scrape configuration for pods that the Prometheus documentation had for years.
POD_LABELS = (("namespace", "pod"), ("kubernetes_namespace", "kubernetes_pod_name"))
MISSED_SCRAPES = 2  # later scrapes without a line, after which it is dropped

# Prometheus 3 allows any UTF-8 in names; those outside of the classic grammar are quoted.
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*", re.ASCII)
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class SeriesOrigin(NamedTuple):
    """The target that exposed a series: a pod, or an address. pod: None where only the address counts."""

    pod: PodKey | None
    instance: str

    def parameters(self) -> Mapping[str, str]:
        """Parsed from its URL."""
        return self.pod._asdict() if self.pod is not None else {"instance": self.instance}


class PageLine(NamedTuple):
    """One line of a page over time. series: name and labels as printed. times, values: as in PromqlSeries."""

    series: bytes
    times: tuple[float, ...]
    values: tuple[float, ...]


class ScrapedTarget(NamedTuple):
    """One target of the server, with its lines of one origin. up: None if the response has none."""

    name: str
    instance: str
    up: PromqlSeries | None
    lines: tuple[PageLine, ...]


class _ServerTarget(NamedTuple):
    """A target of the server: the labels that it adds, and all its series."""

    labels: Mapping[str, str]
    up: PromqlSeries | None
    series: list[PromqlSeries]


# Series with their labels as on the page.
_LabeledSeries = tuple[PromqlSeries, dict[str, str]]


class _PageShare(NamedTuple):
    """The lines of one scrape, as printed, and the time of the newest."""

    lines: list[bytes]
    at: float


def jobs_of(series: Sequence[PromqlSeries]) -> frozenset[str]:
    """The server's jobs with series other than `up`."""
    return frozenset(_address(one)[0] for one in series if one.name != UP)


def group_by_origin(
    series: Sequence[PromqlSeries], role: Role, jobs: Container[str]
) -> Mapping[SeriesOrigin, tuple[ScrapedTarget, ...]]:
    """The origins in a response, in order: pods for role PODS, else addresses.

    jobs: those of the query. A target of one of them is listed by its `up` even without another series: it must answer,
          and does not. The `up` of other jobs is ignored.
    """
    found: dict[SeriesOrigin, list[tuple[_ServerTarget, list[_LabeledSeries]]]] = {}
    for target in _server_targets(series):
        by_origin: dict[SeriesOrigin, list[_LabeledSeries]] = {}
        for one in target.series:
            labels = _page_labels(one.labels, target)
            by_origin.setdefault(_origin(labels, target.labels, role), []).append((one, labels))
        if not by_origin and target.labels.get("job", "") in jobs:
            by_origin = {_origin({}, target.labels, role): []}
        for origin, lines in by_origin.items():
            found.setdefault(origin, []).append((target, lines))
    return {origin: _scraped(found[origin]) for origin in sorted(found, key=str)}


def page_at(targets: Sequence[ScrapedTarget], after: float, until: float) -> bytes | Failure | None:
    """The page of one origin from samples in (after, until], POSIX seconds; None if the origin did not exist."""
    up: dict[str, list[_PageShare]] = {}
    down: dict[str, str] = {}
    for target in targets:
        value = _newest_up(target, after, until)
        if value == 0.0:
            down.setdefault(target.instance, target.name)
        elif value is not None:
            share = _share(target, after, until)
            if target.up is not None or share.lines:
                up.setdefault(target.instance, []).append(share)
    if not up and not down:
        return None
    for instance, name in down.items():
        if instance not in up:
            return Failure(FailureKind.REFUSED, f"`up` is 0: the server cannot scrape it ({name})")
    fullest = (max(shares, key=lambda share: (len(share.lines), share.at)) for shares in up.values())
    page = b"".join(line for share in fullest for line in share.lines)
    return page or Failure(FailureKind.EMPTY, "the server scrapes it, and finds no family of this kind on its page")


def format_series(name: str, labels: Mapping[str, str]) -> bytes:
    r"""Name and labels in the text format, labels in the order of their names, so that one series has one form.

    `format_series("up", {"job": 'a "b"'})` is `b'up{job="a \\"b\\""}'`.
    """
    pairs = [
        f"{label if _LABEL.fullmatch(label) else _quoted(label)}={_quoted(value)}"
        for label, value in sorted(labels.items())
    ]
    if _NAME.fullmatch(name):
        return (f"{name}{{{','.join(pairs)}}}" if pairs else name).encode()
    return f"{{{','.join([_quoted(name), *pairs])}}}".encode()


def format_line(series: bytes, value: float, at: float) -> bytes:
    """A line of the text format. at: POSIX seconds; the text has whole milliseconds, as servers store them."""
    return b"%s %a %d\n" % (series, value, round(at * 1000))


def _quoted(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"'


def _server_targets(series: Sequence[PromqlSeries]) -> Iterable[_ServerTarget]:
    with_up: dict[tuple[str, str], list[_ServerTarget]] = {}
    without_up: dict[frozenset[tuple[str, str]], _ServerTarget] = {}
    for one in series:
        if one.name == UP:
            with_up.setdefault(_address(one), []).append(_ServerTarget(one.labels, one, []))
    for one in series:
        if one.name == UP:
            continue
        candidates = with_up.get(_address(one))
        if candidates:
            # An HA pair without deduplication has two `up` of one address: the one with more equal labels.
            max(candidates, key=lambda target: len(target.labels.items() & one.labels.items())).series.append(one)
        else:
            usual = {name: one.labels[name] for name in USUAL_LABELS if name in one.labels}
            without_up.setdefault(frozenset(usual.items()), _ServerTarget(usual, None, [])).series.append(one)
    for group in with_up.values():
        yield from group
    yield from without_up.values()


def _address(series: PromqlSeries) -> tuple[str, str]:
    return series.labels.get("job", ""), series.labels.get("instance", "")


def _page_labels(labels: Mapping[str, str], target: _ServerTarget) -> dict[str, str]:
    """The labels on the page, before the server added its own."""
    if target.up is None:
        exported = any(EXPORTED + "pod" in one.labels for one in target.series)
    else:
        exported = EXPORTED + "pod" in labels or labels.get("pod") == target.labels.get("pod")
    kept = {
        name: value
        for name, value in labels.items()
        if (not exported if name in OWNER_LABELS else target.labels.get(name) != value)
        and not name.startswith(EXPORTED)
    }
    for name, value in labels.items():
        bare = name.removeprefix(EXPORTED)
        if bare != name:
            kept[bare if bare not in kept else name] = value
    return kept


def _origin(labels: Mapping[str, str], server_labels: Mapping[str, str], role: Role) -> SeriesOrigin:
    """A page may name other pods than the scraped one (a sidecar of several pods, a federation): these are meant."""
    if role is Role.PODS:
        for source in (labels, server_labels):
            for namespace, pod in POD_LABELS:
                if source.get(pod):
                    return SeriesOrigin(PodKey(source.get(namespace, ""), source[pod]), "")
    return SeriesOrigin(None, server_labels.get("instance", labels.get("instance", "")))


def _scraped(found: Sequence[tuple[_ServerTarget, list[_LabeledSeries]]]) -> tuple[ScrapedTarget, ...]:
    # Two servers in one pod print the same lines, and both count.
    several = len({target.labels.get("instance", "") for target, _ in found}) > 1
    scraped = []
    for target, lines in found:
        job, instance = target.labels.get("job", ""), target.labels.get("instance", "")
        added = {"instance": instance} if several else {}
        by_series = {format_series(one.name, {**added, **labels}): one for one, labels in lines}
        page = tuple(PageLine(series, one.times, one.values) for series, one in sorted(by_series.items()))
        scraped.append(ScrapedTarget(f"job {job!r}, instance {instance!r}", instance, target.up, page))
    return tuple(scraped)


def _newest_up(target: ScrapedTarget, after: float, until: float) -> float | None:
    """1 if the response has no `up` of this target; None if the server no longer scrapes it."""
    if target.up is None:
        return 1.0
    newest = _newest(target.up.times, after, until)
    # `up` is 0 or 1: NaN is a staleness marker, which VictoriaMetrics returns.
    return None if newest is None or isnan(target.up.values[newest]) else target.up.values[newest]


def _share(target: ScrapedTarget, after: float, until: float) -> _PageShare:
    newest = [(line, i) for line in target.lines if (i := _newest(line.times, after, until)) is not None]
    scraped_at = _scrape_times(target, newest)
    kept = [(line, i) for line, i in newest if not _is_gone(line.times[i], scraped_at, until)]
    at = max((line.times[i] for line, i in kept), default=after)
    return _PageShare([format_line(line.series, line.values[i], line.times[i]) for line, i in kept], at)


def _scrape_times(target: ScrapedTarget, newest: Sequence[tuple[PageLine, int]]) -> tuple[float, ...]:
    """Those of its `up`, or else of the line that is the most up to date."""
    if target.up is not None:
        return target.up.times
    return max((line.times[: i + 1] for line, i in newest), key=lambda times: (times[-1], len(times)), default=())


def _is_gone(at: float, scraped_at: Sequence[float], until: float) -> bool:
    """Whether a line with its newest sample from the scrape `at` is missing from the later ones.

    A line with its own timestamps (an exporter's, another server's) belongs to no scrape, and stays.
    """
    index = bisect_left(scraped_at, at)
    if index == len(scraped_at) or scraped_at[index] != at:
        return False
    return bisect_right(scraped_at, until) - index > MISSED_SCRAPES


def _newest(times: Sequence[float], after: float, until: float) -> int | None:
    index = bisect_right(times, until) - 1
    return index if index >= 0 and times[index] > after else None
