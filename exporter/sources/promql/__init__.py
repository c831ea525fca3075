r"""Reads pages from a server with Prometheus' query API, with one query for all targets of a workload.

The query is an instant one for a range vector, which alone returns samples with their scrape times; an instant vector
has the time of the query. The series are sorted by target and printed as that target's page, with timestamps, so that
parsing and aggregation are those of every other page. Prometheus, Thanos, Mimir and VictoriaMetrics support it.

- `client`: queries, and the pages of the last responses.     - `decode`: JSON to series.
- `pages`: series to targets and their pages.                 - `discovery`: lists the targets; history.

Worked example: Prometheus scraped `vllm:num_requests_waiting{model_name="m"} 3` from pod chat-0 at 1700000000.5 and
nothing from chat-1, with an `up` of 0. A `PromqlTargets` for role PODS lists both pods; `Promql.fetch` of the first is
`b'vllm:num_requests_waiting{model_name="m"} 3.0 1700000000500\n'`, of the second a `Failure(REFUSED, …)`.
"""

from .client import Promql, PromqlQuery
from .discovery import HistoryFrame, PromqlTargets

__all__ = ["HistoryFrame", "Promql", "PromqlQuery", "PromqlTargets"]
