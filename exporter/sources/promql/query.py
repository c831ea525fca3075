"""What a PromQL source is asked for, and what its pages are called. Words only: nothing here is sent anywhere.

Exactly the families that the catalog reads are asked for, and `up`: an engine's histograms are a hundred times as many
series, and nobody looks at them.

Worked example: `promql(query, 45.0)` for kind "llamacpp" and the selector `namespace="ai"` begins
`{__name__=~"llamacpp:kv_cache_usage_ratio|` and ends `|up",namespace="ai"}[45000ms]`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlencode

from exporter.catalog import families
from exporter.model import Credentials, Role, Target, WorkloadKey

from .origin import UP, SeriesOrigin

SCHEME = "promql+"


@dataclass(frozen=True, slots=True)
class PromqlQuery:
    """The pages of one purpose on one server.

    url:       base of the API, with its prefix if it has one: "https://mimir.example/prometheus". No credentials.
    kind:      a kind of the catalog or "auto".
    owner:     the workload a pods or gateway page belongs to; None for GPUs.
    selector:  label matchers without braces, `namespace="ai",pod=~"chat-.*"`; "" for every series of the kind. It is
               believed as it stands: whoever writes it can read everything the server has.
    max_age_s: seconds after which a sample is too old to be believed. It must hold two scrapes of the server, better
               three: with less, whoever is missing from an answer may only not have been scraped yet.
    """

    url: str
    kind: str
    role: Role
    owner: WorkloadKey | None
    selector: str
    max_age_s: float
    access: Credentials = field(default=Credentials())

    @property
    def base(self) -> str:
        return self.url.rstrip("/")


def promql(query: PromqlQuery, window_s: float) -> str:
    """A range vector of the last `window_s` seconds of everything the query wants."""
    names = "|".join(sorted({UP, *families(query.kind)}))
    matchers = ",".join(filter(None, (f'__name__=~"{names}"', query.selector.strip(" ,\n"))))
    return f"{{{matchers}}}[{round(window_s * 1000)}ms]"


def target_of(query: PromqlQuery, source: SeriesOrigin) -> Target:
    """The target that stands for one source. The same source has the same one at every look."""
    words = {"kind": query.kind, "selector": query.selector, **source.words()}
    url = f"{SCHEME}{query.base}?{urlencode({name: word for name, word in words.items() if word})}"
    return Target(url, query.kind, query.role, query.owner, query.access, source.pod, query.max_age_s)
