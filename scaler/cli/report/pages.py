"""Reads a folder of recorded metrics responses, for a report without a daemon and without Prometheus.

A folder within the folder is a target, and its files are responses of that target. A file's name is the time of the
response in POSIX seconds, as `$(date +%s).prom` writes it; of another name the time is the file's modification. Files
may be compressed with gzip. What is not a response is left out, and counted.

Worked example: `pages/chat-0/1767225600.prom` and `pages/node-1/1767225600.prom.gz` are a response of an engine and one
of dcgm-exporter, of the same moment.
"""

from __future__ import annotations

import gzip
import re
import zlib
from pathlib import Path
from typing import Any

from exporter.catalog import AUTO, Reader
from exporter.model import PodKey, Samples, WorkloadKey
from exporter.scrape.request import read
from exporter.textformat import Scanner
from scaler.cli.replay.history import POD_NAMES
from scaler.report import history, statement
from scaler.report.profile import of_moments
from scaler.report.recorded import RecordedPage, moments_of

from .run import BadReportRequest, Progress

MOST_BYTES = 64 << 20  # of a response
_GZIP = b"\x1f\x8b"
_TIME = re.compile(r"([0-9]{9,10}(?:\.[0-9]{1,6})?)(?:\.[a-z.]{1,16})?")
_POD_SUFFIX = re.compile(POD_NAMES)


def read_pages(names: tuple[str, ...], folder: Path, progress: Progress) -> dict[str, Any]:
    """The report of one workload. Raises BadReportRequest."""
    if len(names) != 1 or "/" not in names[0]:
        raise BadReportRequest(f"--pages: name the one workload that was recorded as NAMESPACE/NAME, got {len(names)}")
    namespace, _, label = names[0].partition("/")
    workload = WorkloadKey(namespace, *label.split("/", 1))
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

    def matches(pod: PodKey) -> bool:
        return pod.namespace == namespace and _POD_SUFFIX.fullmatch(pod.pod.removeprefix(workload.name)) is not None

    moments = moments_of(targets, matches)
    profile = of_moments(workload, moments.values, moments.step_s, moments.until)
    accounts = history.accounts_of(dict.fromkeys(history.QUERIES, ()), moments.since, moments.until)
    report = statement.build({**accounts, "since": moments.since}, [profile])
    report["recorded"] = {"files": len(files), "responses": used, "targets": len(targets)}
    progress("", 1.0)
    return report


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
