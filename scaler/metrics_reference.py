"""The reference of all metrics in Markdown, made from the collectors themselves: `python -m scaler.metrics_reference`.

It builds daemons that never run, one with nothing configured and one for each part of the configuration that brings
metrics of its own, asks their registries what they have, and writes one table for each collector; then the same for the
page of `tidegate export`. It knows how a table looks and nothing about any metric: what one means is its help.

Worked example: `SnapshotCollector` says nothing where there is no `state`, so `tidegate_snapshot_failures_total` is
found in the daemon with a `state` and in no other, and its row ends in "`run`, with `state`".
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric

from exporter.catalog.own import GPU_FAMILIES, QUEUE_FAMILIES
from exporter.clock import WallClock
from exporter.model import Attribution, FailureKind, Gpu, PodKey, Queue, Samples
from exporter.normalised import Heard, NormalisedCollector

from .config.model import Config
from .daemon import Daemon
from .web import own

# The parts of a configuration that bring metrics of their own, each with the least that it takes.
_KUBERNETES: Mapping[str, Any] = {"kubernetes": {}}
_PEERS = {"certificate": "tls.crt", "key": "tls.key", "ca": "ca.crt", "server_name": "tidegate", "lease": "a.b"}
PARTS: Mapping[str, Mapping[str, Any]] = {
    "kubernetes": _KUBERNETES,
    "state": {"state": {"directory": "state"}},
    "listen.peers": {**_KUBERNETES, "listen": {"peers": _PEERS}},
}

_HEAD = """\
# Metrics

<!-- Made by `python -m scaler.metrics_reference`. Change the help of a metric where its collector has it, not here. -->

What `tidegate run` shows on `:8080/metrics`, and `tidegate export` on `:9410/metrics`. Three rules hold for all:

- **What is not known has no sample.** There is no -1, no NaN, and no 0 that means "unknown": in PromQL, `absent()` and
  `unless` are how to ask for it. An answer that is an error has no `tidegate_replicas`; its `tidegate_reason` is
  `unknown`.
- **Units are in the names**: seconds, bytes, joules, watts, ratios from 0 to 1, and counts. Times are POSIX seconds and
  end in `_timestamp_seconds`.
- **`namespace` and `workload` are the workload's**, and not those of Tidegate's pod: scrape with `honorLabels: true`,
  as the chart's monitors do. A further trigger of a ScaledObject is a workload of its own, called `NAME/TRIGGER`.

With several replicas all of them show the same decisions, so aggregate with `max by (namespace, workload)` and not with
`sum`. Accounts are the exception: the replica that leads has them and no other, so `sum by (namespace, workload)` of
their increase is right also where another took the lead.

Which alerts are made of these, and what to do about each, is in the [runbooks](../how-to/runbooks.md).
"""

_EXPORT_HEAD = """\
## The page of `tidegate export`

One small page beside an engine or on a node ([export](../how-to/collect-only.md)). A family that nobody speaks of is
left out.
"""


class Family(NamedTuple):
    """One metric as a reader meets it: its name on the page, with `_total` or `_info`."""

    name: str
    type: str
    labels: tuple[str, ...]
    help: str


class Section(NamedTuple):
    """The metrics of one collector."""

    title: str
    about: str
    families: tuple[Family, ...]


# What a section is called, in the order in which they stand; a collector that is not named here comes after these,
# under its own name.
_OWN, _PROCESS = "Tidegate itself", "The process"
TITLES = {
    "Board": "Workloads",
    "Accounts": "Accounts and shadow scores",
    "Seen": "Pages and GPUs",
    "Outlook": "What KEDA and the HPA will do",
    "Cluster": "The cluster",
    "Peers": "Replicas of Tidegate",
    "Snapshot": "Snapshots",
}


def reference() -> str:
    bare = _families({})
    parts = {part: _families(config) for part, config in PARTS.items()}
    everything = [found for sections in (bare, *parts.values()) for found in sections]
    found = [section.title for section in everything]
    lines = [_HEAD]
    for title in sorted(dict.fromkeys(found), key=_rank):
        same = [section for section in everything if section.title == title]
        families = {family.name: family for section in same for family in section.families}
        where = {name: _where(name, bare, parts) for name in families}
        lines.append(_section(f"## {title}", same[0].about, families.values(), where))
    page = export_families()
    lines += [_EXPORT_HEAD, _table(page, {family.name: "`export`" for family in page})]
    return "\n".join(lines)


def families_of(registry: CollectorRegistry) -> list[Section]:
    """What a registry's collectors say that they have, also where there is nothing to show at present."""
    sections: list[Section] = []
    # A registry gives its metrics away and not who made them, and the name of whoever did is the section's.
    for collector in tuple(registry._collector_to_names):  # noqa: SLF001
        mine = tuple(_family(each, collector) for each in collector.collect())
        is_instrument = isinstance(collector, MetricWrapperBase)
        foreign = type(collector).__module__.startswith("prometheus_client") and not is_instrument
        title: str
        about: str | None
        if is_instrument:
            title, about = _OWN, own.__doc__
        elif foreign:
            title, about = _PROCESS, "Of prometheus-client: what the process uses."
        else:
            title, about = _title(type(collector).__name__), sys.modules[type(collector).__module__].__doc__
        sections.append(Section(title, _first_paragraph(about or ""), mine))
    return sections


def export_families() -> list[Family]:
    """Those of the page of `tidegate export`. Its collector says nothing of what nobody speaks of, so one queue and one
    GPU that say everything are shown to it.
    """
    pods = (PodKey("n", "p"),)
    gpu = Gpu("u", instance="1", profile="1g", model="m", node="n", attribution=Attribution.MIG, pods=pods)
    quantities = (*QUEUE_FAMILIES, *GPU_FAMILIES)
    samples = Samples("", (Queue("q"), gpu), quantities, np.ones((2, len(quantities))), np.zeros(2))
    heard = Heard("s", samples, up=True, failures=dict.fromkeys(FailureKind, 1))
    return [_family(each, None) for each in NormalisedCollector([heard], 0.0).collect()]


def _families(config: Mapping[str, Any]) -> list[Section]:
    return families_of(Daemon(Config.model_validate(config), WallClock()).registry)


def _family(family: Metric, collector: object) -> Family:
    # prometheus-client has the labels of a family without a sample in this attribute alone.
    said: tuple[str, ...] = getattr(family, "_labelnames", ()) or getattr(collector, "_labelnames", ())
    shown = dict.fromkeys(label for sample in family.samples for label in sample.labels)
    labels = said or tuple(label for label in shown if label != "le")
    if isinstance(collector, MetricWrapperBase) and family.type == "info":
        labels = tuple(shown)
    ending = {"counter": "_total", "info": "_info"}.get(family.type, "")
    return Family(family.name.removesuffix(ending) + ending, family.type, labels, family.documentation)


def _where(name: str, bare: Iterable[Section], parts: Mapping[str, Iterable[Section]]) -> str:
    if _has(name, bare):
        return "`run`"
    # The first is the least that it takes: `listen.peers` needs `kubernetes` too.
    part = next(part for part, sections in parts.items() if _has(name, sections))
    return f"`run`, with [`{part}`](configuration.md#{_ANCHORS[part]})"


_ANCHORS = {"kubernetes": "kubernetes", "state": "snapshots", "listen.peers": "peers"}


def _has(name: str, sections: Iterable[Section]) -> bool:
    return any(family.name == name for section in sections for family in section.families)


def _section(head: str, about: str, families: Iterable[Family], where: Mapping[str, str]) -> str:
    return f"{head}\n\n{about}\n\n{_table(families, where)}"


def _table(families: Iterable[Family], where: Mapping[str, str]) -> str:
    lines = ["| metric | type | labels | is | where |", "|---|---|---|---|---|"]
    for family in families:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        lines.append(f"| `{family.name}` | {family.type} | {labels} | {_cell(family.help)} | {where[family.name]} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _first_paragraph(doc: str) -> str:
    return " ".join(doc.strip().split("\n\n")[0].split())


def _title(name: str) -> str:
    """BoardCollector -> Workloads, as TITLES has it; LiveBoardCollector -> Live board, which it has not."""
    words = re.findall(r"[A-Z][a-z]+", name.removesuffix("Collector"))
    spaced = " ".join([words[0], *(word.lower() for word in words[1:])])
    return TITLES.get(spaced, spaced)


def _rank(title: str) -> tuple[int, str]:
    """Workloads come first, what every process has last."""
    known = list(TITLES.values())
    place = len(known) if title not in known else known.index(title)
    return (len(known) + 1 + (title == _PROCESS) if title in (_OWN, _PROCESS) else place), title


if __name__ == "__main__":
    sys.stdout.write(reference())
