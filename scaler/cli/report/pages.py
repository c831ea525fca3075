"""Reads a folder of recorded metrics responses, for a report without a daemon and without Prometheus.

A folder within the folder is a target, and its files are responses of that target. If several workloads were recorded,
the folder of an engine has the name of its pod, as a GPU's response has. A file's name is the time of the response in
POSIX seconds, as `$(date +%s).prom` writes it; of another name the time is the file's modification. Files may be
compressed with gzip. What is not a response is left out, and counted.

Worked example: `pages/chat-0/1767225600.prom` and `pages/node-1/1767225600.prom.gz` are a response of an engine and one
of dcgm-exporter, of the same moment.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from exporter.catalog import AUTO, Reader
from exporter.catalog.engine_memory import smallest
from exporter.model import Gpu, PodKey, Queue, Samples, WorkloadKey
from exporter.scrape.request import read
from exporter.textformat import Scanner
from scaler.cli.replay.history import POD_NAMES
from scaler.report import history, statement
from scaler.report.profile import Profile, of_moments
from scaler.report.recorded import Moments, RecordedPage, moments_of
from scaler.report.saturation import throughputs

from .run import BadReportRequest, Progress

MOST_BYTES = 64 << 20  # of a response
_GZIP = b"\x1f\x8b"
_TIME = re.compile(r"([0-9]{9,10}(?:\.[0-9]{1,6})?)(?:\.[a-z.]{1,16})?")
_POD_SUFFIX = re.compile(POD_NAMES)


def read_pages(names: tuple[str, ...], folder: Path, progress: Progress) -> dict[str, Any]:
    """The report of the workloads that were recorded. Raises BadReportRequest."""
    if not names or any("/" not in name for name in names):
        raise BadReportRequest("--pages: name each workload that was recorded as NAMESPACE/NAME")
    workloads = [
        WorkloadKey(namespace, *label.split("/", 1)) for namespace, _, label in (n.partition("/") for n in names)
    ]
    if not folder.is_dir():
        raise BadReportRequest(f"--pages: must be a folder, got {str(folder)!r}")
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    targets: dict[str, list[RecordedPage]] = {}
    readers: dict[str, tuple[Reader, Scanner]] = {}
    timed = sorted((_time_of(path), path) for path in files)
    for index, (at, path) in enumerate(timed):
        name = str(path.parent.relative_to(folder))
        progress(name, index / len(timed))
        samples = read(_bytes_of(path), *readers.setdefault(name, (Reader(AUTO), Scanner())), at)
        if isinstance(samples, Samples):
            targets.setdefault(name, []).append(RecordedPage(at, samples))
    used = sum(map(len, targets.values()))
    if not used:
        raise BadReportRequest(f"{folder}: none of {len(files)} files is a metrics response that Tidegate knows")
    owners = {name: _owner(name, workloads) for name, pages in targets.items() if _shows(Queue, pages)}
    profiles, moments = zip(*(_profile(each, targets, owners) for each in workloads), strict=True)
    since, until = min(each.since for each in moments), max(each.until for each in moments)
    accounts = history.accounts_of(dict.fromkeys(history.QUERIES, ()), since, until)
    report = statement.build({**accounts, "since": since}, profiles)
    report["recorded"] = {"files": len(files), "responses": used, "targets": len(targets)}
    progress("", 1.0)
    return report


def _owner(target: str, workloads: Sequence[WorkloadKey]) -> WorkloadKey:
    """The workload of an engine: the only one, or the one whose pod the folder is named after. Raises
    BadReportRequest.
    """
    found = [each for each in workloads if len(workloads) == 1 or _is_pod(each, Path(target).name)]
    if len(found) != 1:
        shown = ", ".join(map(str, workloads))
        raise BadReportRequest(f"--pages: {target}: must have the name of a pod of exactly one of {shown}")
    return found[0]


def _is_pod(workload: WorkloadKey, pod: str) -> bool:
    return pod.startswith(workload.name) and _POD_SUFFIX.fullmatch(pod.removeprefix(workload.name)) is not None


def _profile(
    workload: WorkloadKey,
    targets: Mapping[str, Sequence[RecordedPage]],
    owners: Mapping[str, WorkloadKey],
) -> tuple[Profile, Moments]:
    """The profile of one workload. owners: of the engines."""

    def matches(pod: PodKey) -> bool:
        return pod.namespace == workload.namespace and _is_pod(workload, pod.pod)

    related = {name: pages for name, pages in targets.items() if owners.get(name, workload) == workload}
    if not related:
        raise BadReportRequest(f"--pages: no response is of {workload}")
    engines = {Path(name).name: pages for name, pages in related.items() if name in owners}
    gpus = [pages for pages in related.values() if _shows(Gpu, pages)]
    moments = moments_of(related, matches)
    profile = of_moments(workload, moments.values, moments.step_s, moments.until)
    memory = smallest(pages[-1].samples.memory for name, pages in related.items() if name in owners)
    return replace(profile, slices=throughputs(engines, gpus, matches), engine=memory), moments


def _shows(kind: type[Queue | Gpu], pages: Sequence[RecordedPage]) -> bool:
    return any(isinstance(subject, kind) for page in pages for subject in page.samples.subjects)


def _time_of(path: Path) -> float:
    found = _TIME.fullmatch(path.name)
    return path.stat().st_mtime if found is None else float(found[1])


def _bytes_of(path: Path) -> bytes:
    """Up to MOST_BYTES, unpacked; nothing of a file that cannot be read."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == _GZIP
        with gzip.open(path, "rb") if packed else path.open("rb") as opened:
            return opened.read(MOST_BYTES)
    except (OSError, EOFError, zlib.error):
        return b""
