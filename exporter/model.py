"""The words everything else is written in: what was asked, what was said, and whose it is.

This module knows names and units and nothing about vendors, sockets or policies. Everything here is a frozen
value from the standard library and NumPy. Units are SI (seconds, bytes, watts, joules) and ratios 0..1; time is
POSIX seconds. A number that is not known is NaN inside an array and `None` in a record; it is never 0.

Worked example: a dcgm-exporter page says `DCGM_FI_DEV_FB_USED{UUID="GPU-1",…} 1024`. That becomes, in a
`Samples` table, row `Gpu(uuid="GPU-1", instance=None, …)`, column `Quantity.GPU_MEMORY_USED`, value 1073741824.0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from math import nan
from typing import NamedTuple, TypeAlias
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]


class Quantity(StrEnum):
    """What a number means, whatever its vendor called it. The unit is in the comment."""

    # Queues: engines, gateways, brokers.
    REQUESTS_WAITING = "requests_waiting"  # requests accepted and not yet being worked on
    REQUESTS_RUNNING = "requests_running"  # requests being worked on
    # Requests a gateway keeps in front of the engines. Apart from `requests_waiting`, because a gateway may also
    # repeat its engines' own queues (EPP's averages do): a reader that has the engines adds only this.
    REQUESTS_HELD = "requests_held"
    REQUESTS_FINISHED = "requests_finished"  # counter
    REQUESTS_FAILED = "requests_failed"  # counter: refused, aborted or broken requests; activity all the same
    TOKENS_PROMPT = "tokens_prompt"  # counter
    TOKENS_GENERATED = "tokens_generated"  # counter
    KV_CACHE_USED = "kv_cache_used"  # ratio of the cache's blocks, mean over the engines of a page
    ENGINE_AWAKE = "engine_awake"  # 1 awake, 0 asleep (vLLM sleep mode): asleep is not idle capacity
    REPLICAS_READY = "replicas_ready"  # ready backends a gateway says it has

    # GPUs.
    GPU_ENGINE_ACTIVE = "gpu_engine_active"  # ratio of time the graphics/compute engine was active
    GPU_UTILIZATION = "gpu_utilization"  # ratio of time any kernel ran: 1.0 with one small request; never load
    GPU_SM_ACTIVE = "gpu_sm_active"  # ratio
    GPU_TENSOR_ACTIVE = "gpu_tensor_active"  # ratio
    GPU_DRAM_ACTIVE = "gpu_dram_active"  # ratio
    GPU_MEMORY_USED = "gpu_memory_used"  # bytes
    GPU_MEMORY_TOTAL = "gpu_memory_total"  # bytes
    GPU_POWER = "gpu_power"  # watts
    GPU_ENERGY = "gpu_energy"  # joules, counter
    GPU_TEMPERATURE = "gpu_temperature"  # degrees Celsius
    GPU_XID = "gpu_xid"  # the last Xid code; does not clear
    GPU_LOST = "gpu_lost"  # 1 where a fatal Xid came and the GPU fell silent; of any other GPU it is not said


class Attribution(StrEnum):
    """How a GPU's numbers came to be a pod's."""

    EXCLUSIVE = "exclusive"  # the whole GPU is one pod's
    MIG = "mig"  # a MIG instance is one pod's
    PROCESS = "process"  # measured per process and the parts add up
    DEVICE = "device"  # shared, and only the device's value is known: nobody's share
    NONE = "none"  # allocated to nobody, or nobody is named


class PodKey(NamedTuple):
    """A pod. Where only its UID is known, as to a driver that sees processes: no namespace, and the UID as its name."""

    namespace: str
    pod: str


class WorkloadKey(NamedTuple):
    """One thing that is sized: a workload of the configuration, or one trigger of a ScaledObject.

    trigger: which, where a ScaledObject has several of ours; "" for the only or first one.
    """

    namespace: str
    name: str
    trigger: str = ""

    @property
    def label(self) -> str:
        """What it is called within its namespace: "chat", or "chat/decode" for a further trigger."""
        return f"{self.name}/{self.trigger}" if self.trigger else self.name

    def __str__(self) -> str:
        return f"{self.namespace}/{self.label}"


@dataclass(frozen=True, slots=True)
class Queue:
    """One thing that scales by itself: a model, a deployment, a queue name."""

    name: str


class Part(NamedTuple):
    """What the processes of one pod do on a shared GPU: measured, never divided.

    utilization: ratio. memory: bytes. NaN where it is not said.
    """

    pod: PodKey
    utilization: float
    memory: float


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, or one MIG instance of one: identity is (uuid, instance); the rest is attributes that may change.

    implied: the page shows its MIG instances alone, and its numbers are what each of them repeats of it (power, …).
    parts:   of a shared one, what is measured per process and adds up to the device's own value; else empty.
    node:    where it is, by the word of whoever shows it; None where nobody says.
    """

    uuid: str
    instance: str | None = None  # MIG GPU instance id, None for a whole GPU
    profile: str | None = None  # "1g.5gb"
    model: str | None = None
    attribution: Attribution = Attribution.NONE
    pods: tuple[PodKey, ...] = ()
    implied: bool = False
    parts: tuple[Part, ...] = ()
    node: str | None = None


Subject: TypeAlias = Queue | Gpu


class Dropped(NamedTuple):
    """A datum that was not believed. `line` counts from 1."""

    line: int
    reason: str


class GapReason(StrEnum):
    """Why a series does not count as complete."""

    MISSING = "missing"  # exposed before by this process, and not in this response
    INVALID = "invalid"  # exposed without a valid value: NaN, or out of range
    UNPARSABLE = "unparsable"  # a line of its family does not parse
    CONFLICTING = "conflicting"  # exposed more than once, with different values


class Gap(NamedTuple):
    """A quantity of one subject that is a lower bound, because one of its series is not complete.

    row:      of `Samples.subjects`.
    at_least: the quantity without that series, in its unit; NaN if nothing of it is known.
    series:   name and labels, or the family's name, as people know them.
    since:    POSIX seconds of the last response that had a missing series; NaN for the other reasons.
    """

    row: int
    quantity: Quantity
    at_least: float
    reason: GapReason
    series: str
    since: float = nan


class MissingSeries(NamedTuple):
    """A series that a process has exposed and that its last response did not contain: what a checkpoint holds of it.

    A GPU that has lost its pod label is stored likewise, with `at` of the last response that had the label.

    identity:   the series, its quantity and its subject, or the labelled GPU, as `catalog.missing_series` writes
                and reads them.
    pods:       of a GPU, the pods that it is allocated to; empty for a queue.
    value:      the last valid value, in the unit of the response; NaN if there was none.
    at:         POSIX seconds of the last response that had it.
    gone_since: POSIX seconds since when no series has its labels; NaN while some do.
    had_mates:  series of other families had all its labels when it was there last.
    process_start: `process_start_time_seconds` of the process, by the target's clock; NaN if it is not exposed.
    """

    identity: bytes
    pods: tuple[PodKey, ...]
    value: float
    at: float
    gone_since: float
    had_mates: bool
    process_start: float


@dataclass(frozen=True, slots=True)
class Samples:
    """What one page said, as one array: a row per subject, a column per quantity.

    values: shape (len(subjects), len(quantities)), in the unit of the column's quantity; NaN where the page does
            not say.
    at:     shape (len(subjects),), POSIX seconds when the row was measured: the page's own timestamp (the oldest
            of the row) if it has one, else receipt.
    gaps:   what is incomplete. A queue's incomplete quantity is NaN in `values`. A GPU that is missing has a row of its
            own, with `at` of its last reading.
    missing: what a later process must know of the missing series, at most `missing_series.MAX_STORED`.
    """

    kind: str
    subjects: tuple[Subject, ...]
    quantities: tuple[Quantity, ...]
    values: Floats
    at: Floats
    dropped: tuple[Dropped, ...] = ()
    gaps: tuple[Gap, ...] = ()
    missing: tuple[MissingSeries, ...] = ()

    def column(self, quantity: Quantity) -> Floats:
        """The values of one quantity, shape (len(subjects),); all NaN if no series of the page has it."""
        if quantity not in self.quantities:
            return np.full(len(self.subjects), np.nan)
        values: Floats = self.values[:, self.quantities.index(quantity)]
        return values


class Role(StrEnum):
    """What a target's page is for."""

    PODS = "pods"  # an engine's page on one pod: vanishes with the pod
    GATEWAY = "gateway"  # a page that lives at zero replicas and sees the next request
    GPUS = "gpus"  # a node's GPUs: dcgm-exporter


@dataclass(frozen=True, slots=True)
class Credentials:
    """How to be let in. Files are read again at each use, because kubelet rotates them."""

    bearer_file: str | None = None
    username: str | None = None
    password_file: str | None = None
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    server_name: str | None = None
    insecure_skip_verify: bool = False


@dataclass(frozen=True, slots=True)
class Target:
    """One place we ask.

    kind:  a kind of the catalog ("vllm", "dcgm", …) or "auto".
    owner: the workload a pods or gateway page belongs to; None for node pages, whose GPUs name their pods.
    pod:   the pod whose page it is, where that is known: a new pod with an old one's address is another target.
    max_age_s: its numbers are believed until they are so old, where that is not the configuration's word: who reads
           them from a database gets them as old as that database's own scrapes.
    """

    url: str
    kind: str
    role: Role
    owner: WorkloadKey | None = None
    access: Credentials = field(default=Credentials())
    pod: PodKey | None = None
    max_age_s: float | None = None

    def __str__(self) -> str:
        url = without_user(self.url)
        return f"{self.role}:{self.owner}:{url}" if self.owner else f"{self.role}:{url}"


def without_user_info(url: str) -> str:
    """A URL without the user and password in it: to identify a target by."""
    if "@" not in url:
        return url
    try:
        parts = urlsplit(url)
    except ValueError:
        return "not a URL"
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def without_user(url: str) -> str:
    """A URL as it may be shown: without user, password, and the values in its query, which may be an API key.

    A value is replaced by 16 bits of its digest, so that two targets that differ by a value are still shown apart:
    `http://p/metrics?apikey=secret` is `http://p/metrics?apikey=~8f3b` or alike. The queries of Tidegate's own schemes
    (promql+http, redis) say what is asked and hold no credentials: they stay.
    """
    shown = without_user_info(url)
    address, mark, query = shown.partition("?")
    if not mark or not shown.lower().startswith(("http:", "https:", "//")):
        return shown
    return f"{address}?{'&'.join(_redacted(pair) for pair in query.partition('#')[0].split('&'))}"


def _redacted(pair: str) -> str:
    name, mark, value = pair.partition("=")
    digest = blake2b((value if mark else name).encode(errors="replace"), digest_size=2).hexdigest()
    return f"{name}=~{digest}" if mark else f"~{digest}"


def printable(text: str) -> str:
    """Text of others as it may be shown: nothing in it moves a cursor or ends a line."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


class FailureKind(StrEnum):
    """Why a scrape brought nothing. A closed list: it is a label on /metrics."""

    REFUSED = "refused"  # nobody listens, the connection broke, or a driver is not there
    TIMEOUT = "timeout"
    STATUS = "status"  # an HTTP status other than 200
    TOO_LARGE = "too_large"
    TLS = "tls"
    CREDENTIALS = "credentials"  # a token, password or certificate file that cannot be read
    EMPTY = "empty"  # 200 with nothing in it, as dcgm-exporter answers while it reloads
    UNREADABLE = "unreadable"  # no line of the page was a sample of its kind
    PARTIAL = "partial"  # it says of itself that something is missing, or that it is not to be believed yet
    INTERNAL = "internal"  # our own mistake in reading it: please report


@dataclass(frozen=True, slots=True)
class Failure:
    """A scrape that brought nothing, and why, in words a person can act on."""

    kind: FailureKind
    detail: str


@dataclass(frozen=True, slots=True)
class Scrape:
    """One answer of one target: what it said, or the failure.

    at:     POSIX seconds of receipt.
    took_s: seconds from asking to the last byte.
    """

    target: Target
    at: float
    took_s: float
    outcome: Samples | Failure


class ReplicaCount(NamedTuple):
    """What the cluster says of a workload's replicas.

    at:      POSIX seconds when it was known to be so.
    existing: replicas that are there in whatever state but on their way out; None where that is not known.
    pending: replicas that no node has started yet (no room, or an image on its way).
    gpus:    GPUs and MIG instances that its running pods asked for, those on their way out among them; None where
             that is not known.
    leaving: replicas on their way out that still run, and hold their GPUs.
    """

    wanted: int
    ready: int
    at: float
    pending: int = 0
    gpus: int | None = None
    existing: int | None = None
    leaving: int = 0
