"""Whose a series is: from what a server keeps to what a page printed, and on which source's page it stood.

A server adds labels of its own to every series of a target (job, instance, and whatever its discovery knows) and puts
the same ones on that target's `up`. So what `up` has is not the page's. Where the page had a label of that name too,
the server either renamed the page's to `exported_…` (honor_labels: false) or left its own out (true). Without an `up`
only the usual names are taken for the server's.

Worked example: beside `up{job="dcgm",instance="10.0.0.9:9400",namespace="gpu",pod="dcgm-exporter-x"}` stands
`DCGM_FI_DEV_GPU_UTIL{job="dcgm",instance="10.0.0.9:9400",namespace="gpu",pod="dcgm-exporter-x",UUID="GPU-1",
exported_namespace="ai",exported_pod="chat-0"}`: it is `DCGM_FI_DEV_GPU_UTIL{UUID="GPU-1",namespace="ai",pod="chat-0"}`
on the page of `Source(None, "10.0.0.9:9400")`. A GPU nobody has comes without `exported_pod`, and loses `pod` too.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from exporter.model import PodKey, Role

from .answer import PromqlSeries
from .printed import head

UP = "up"
EXPORTED = "exported_"
# The page's words for whose a thing is stand or fall together: a namespace alone may be the same by chance.
OWNER = ("namespace", "pod", "container")
# What prometheus-operator and its like put on every series, and HA pairs to tell each other apart.
USUAL = ("job", "instance", "endpoint", "service", "prometheus", "prometheus_replica")
# The second name is of the scrape configuration that the Prometheus documentation had for pods for years.
POD_NAMES = (("namespace", "pod"), ("kubernetes_namespace", "kubernetes_pod_name"))


class SeriesOrigin(NamedTuple):
    """Whose page it is: a pod's, or that of an address. pod: None where only the address is known, or counts."""

    pod: PodKey | None
    instance: str

    def words(self) -> Mapping[str, str]:
        """What it is called in a URL."""
        return self.pod._asdict() if self.pod is not None else {"instance": self.instance}


class Line(NamedTuple):
    """One line of a page through time. head: name and labels, as a page has them. times, values: as in `Series`."""

    head: bytes
    times: tuple[float, ...]
    values: tuple[float, ...]


class Scraped(NamedTuple):
    """One target of the server, as far as it speaks of one source. up: None if the answer has none of it."""

    name: str
    instance: str
    up: PromqlSeries | None
    lines: tuple[Line, ...]


class _Asked(NamedTuple):
    """A target of the server: the labels it puts on everything of it, and everything of it."""

    labels: Mapping[str, str]
    up: PromqlSeries | None
    series: list[PromqlSeries]


class _Share(NamedTuple):
    """What of a target is one source's: series, each with its labels as the page printed them."""

    asked: _Asked
    lines: list[tuple[PromqlSeries, dict[str, str]]]


def jobs_of(series: Sequence[PromqlSeries]) -> frozenset[str]:
    """The server's jobs that scrape pages of ours."""
    return frozenset(_address(one)[0] for one in series if one.name != UP)


def sources(
    series: Sequence[PromqlSeries], role: Role, jobs: Container[str]
) -> Mapping[SeriesOrigin, tuple[Scraped, ...]]:
    """Whose pages are in an answer, in order: pods' for role PODS, addresses' for the others.

    jobs: those known to scrape pages of ours. A target of one of them is listed by its `up` even if it has no series:
          it is there to answer, and says nothing. Of the others `up` says nothing of ours.
    """
    found: dict[SeriesOrigin, list[_Share]] = {}
    for asked in _asked(series):
        mine: dict[SeriesOrigin, list[tuple[PromqlSeries, dict[str, str]]]] = {}
        for one in asked.series:
            labels = _printed(one.labels, asked)
            mine.setdefault(_source(labels, asked.labels, role), []).append((one, labels))
        if not mine and asked.labels.get("job", "") in jobs:
            mine = {_source({}, asked.labels, role): []}
        for source, lines in mine.items():
            found.setdefault(source, []).append(_Share(asked, lines))
    return {source: _scraped(found[source]) for source in sorted(found, key=str)}


def _asked(series: Sequence[PromqlSeries]) -> Iterable[_Asked]:
    with_up: dict[tuple[str, ...], list[_Asked]] = {}
    without: dict[frozenset[tuple[str, str]], _Asked] = {}
    for one in series:
        if one.name == UP:
            with_up.setdefault(_address(one), []).append(_Asked(one.labels, one, []))
    for one in series:
        if one.name == UP:
            continue
        candidates = with_up.get(_address(one))
        if candidates:
            # An HA pair without deduplication has two `up` for one address: the one whose other labels agree too.
            max(candidates, key=lambda asked: len(asked.labels.items() & one.labels.items())).series.append(one)
        else:
            usual = {name: one.labels[name] for name in USUAL if name in one.labels}
            without.setdefault(frozenset(usual.items()), _Asked(usual, None, [])).series.append(one)
    for group in with_up.values():
        yield from group
    yield from without.values()


def _address(series: PromqlSeries) -> tuple[str, ...]:
    return series.labels.get("job", ""), series.labels.get("instance", "")


def _printed(labels: Mapping[str, str], asked: _Asked) -> dict[str, str]:
    """The labels a page had before the server added its own."""
    own = asked.labels
    if asked.up is None:
        exports = any(EXPORTED + "pod" in one.labels for one in asked.series)
    else:
        exports = EXPORTED + "pod" in labels or labels.get("pod") == own.get("pod")
    kept = {
        name: value
        for name, value in labels.items()
        if (not exports if name in OWNER else own.get(name) != value) and not name.startswith(EXPORTED)
    }
    for name, value in labels.items():
        bare = name.removeprefix(EXPORTED)
        if bare != name:
            kept[bare if bare not in kept else name] = value
    return kept


def _source(labels: Mapping[str, str], own: Mapping[str, str], role: Role) -> SeriesOrigin:
    """Pages may name pods that are not the one asked (a sidecar of sidecars, a federation): then it is theirs."""
    if role is Role.PODS:
        for said in (labels, own):
            for namespace, pod in POD_NAMES:
                if said.get(pod):
                    return SeriesOrigin(PodKey(said.get(namespace, ""), said[pod]), "")
    return SeriesOrigin(None, own.get("instance", labels.get("instance", "")))


def _scraped(found: Sequence[_Share]) -> tuple[Scraped, ...]:
    # Two servers in one pod print the same lines, and both count.
    several = len({asked.labels.get("instance", "") for asked, _ in found}) > 1
    scraped = []
    for asked, lines in found:
        job, instance = asked.labels.get("job", ""), asked.labels.get("instance", "")
        told_apart = {"instance": instance} if several else {}
        heads = {head(one.name, {**told_apart, **labels}): one for one, labels in lines}
        page = tuple(Line(text, one.times, one.values) for text, one in sorted(heads.items()))
        scraped.append(Scraped(f"job {job!r}, instance {instance!r}", instance, asked.up, page))
    return tuple(scraped)
