r"""Pages that somebody else has scraped already: any server with Prometheus' query API, asked with one query.

The query is an instant one for a range vector, because that alone brings samples with the times they were scraped at;
an instant vector stamps them with the time of asking. What comes back is sorted by whose page it was and printed again
as that page, with timestamps, so that everything after it (textformat, catalog, quantities) is the path of every other
page. Prometheus, Thanos, Mimir and VictoriaMetrics all answer it. Nothing here knows what a family means.

- `query`: what is asked for, and what it is called.   - `answer`: JSON to series, or why not.
- `origin`: which series was on whose page.            - `pages`: one such page as it was at one moment.
- `client`: the question, and the shelf of pages.     - `targets`: the discovery that fills it, and the past.

Worked example: Prometheus scraped `vllm:num_requests_waiting{model_name="m"} 3` from pod chat-0 at 1700000000.5 and
nothing from chat-1, whose `up` is 0. A `PromqlTargets` for role PODS lists both pods; `Promql.fetch` of the first is
`b'vllm:num_requests_waiting{model_name="m"} 3.0 1700000000500\n'`, of the second a `Failure(REFUSED, …)`.
"""

from .client import Promql
from .query import PromqlQuery
from .targets import HistoryFrame, PromqlTargets

__all__ = ["HistoryFrame", "Promql", "PromqlQuery", "PromqlTargets"]
