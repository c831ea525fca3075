"""A workload's past in Tidegate's own counters, where a server keeps those and not the engines' pages.

A series of a replica of Tidegate begins at zero with its process and counts while it leads, as a pod's begins with the
pod: so each replica is a source, and `history` reads them alike.

Worked example: `tidegate_requests_finished_total{namespace="ai",workload="chat"}` of two replicas, of which one led
until noon and the other since, are two sources; their rises are the workload's.
"""

from __future__ import annotations

import json

import numpy as np

from exporter.model import Credentials, Failure, Floats
from exporter.sources.http import OK, HttpPages
from scaler.replay.traces.history import COUNTERS, OUTPUT, PROMPT, REQUESTS

# By name and `kind`, as docs/reference/metrics.md has them.
_COLUMNS = {
    ("tidegate_requests_finished_total", ""): REQUESTS,
    ("tidegate_tokens_total", "prompt"): PROMPT,
    ("tidegate_tokens_total", "generation"): OUTPUT,
}
# What tells the series of one process from another's.
_SOURCE = ("job", "instance", "pod", "prometheus_replica")


class Unreadable(Exception):  # noqa: N818 - it is the server's answer that is wrong
    """The message says what came instead."""


async def own_counters(
    http: HttpPages, base: str, access: Credentials, namespace: str, workload: str, moments: Floats
) -> dict[str, Floats]:
    """What each process of Tidegate had counted at each of `moments` (POSIX seconds, evenly apart), by what tells it
    from others: shape (moments, COUNTERS), NaN where nothing is known. Raises Unreadable.

    base: URL of the API, without a slash at its end.
    """
    names = "|".join(sorted({name for name, _ in _COLUMNS}))
    matchers = f'__name__=~"{names}",namespace="{namespace}",workload="{workload}"'
    step_s = float(moments[1] - moments[0])
    form = {
        "query": f"{{{matchers}}}",
        "start": f"{moments[0]:.3f}",
        "end": f"{moments[-1]:.3f}",
        "step": f"{step_s:g}",
    }
    answer = await http.post(f"{base}/api/v1/query_range", access, form)
    if isinstance(answer, Failure):
        raise Unreadable(answer.detail)
    if answer.status != OK:
        raise Unreadable(f"HTTP {answer.status} {answer.reason}")
    found: dict[str, Floats] = {}
    try:
        for series in json.loads(answer.body)["data"]["result"]:
            labels = series["metric"]
            column = _COLUMNS.get((labels["__name__"], labels.get("kind", "")))
            if column is None:
                continue
            source = "\0".join(labels.get(name, "") for name in _SOURCE)
            counters = found.setdefault(source, np.full((len(moments), COUNTERS), np.nan))
            values = np.array([(float(at), float(value)) for at, value in series["values"]]).reshape(-1, 2)
            places = np.round((values[:, 0] - moments[0]) / step_s).astype(np.int64)
            known = (places >= 0) & (places < len(moments)) & np.isfinite(values[:, 1])
            counters[places[known], column] = values[known, 1]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Unreadable("Tidegate's own counters cannot be read from its answer") from None
    return found
