"""Defines the values that all packages share: targets, scrapes, samples, and the queues and GPUs they describe.

All are frozen. Units are SI (seconds, bytes, watts, joules) and ratios 0..1; time is POSIX seconds. An unknown number
is NaN in an array and None in a record, never 0.

Worked example: `DCGM_FI_DEV_FB_USED{UUID="GPU-1",…} 1024` of dcgm-exporter becomes, in `Samples`, row
`Gpu(uuid="GPU-1", instance=None, …)`, column `Quantity.GPU_MEMORY_USED`, value 1073741824.0.
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

from .histogram import NO_HISTOGRAMS, LatencyHistograms

Floats: TypeAlias = NDArray[np.float64]


class Quantity(StrEnum):
    """The meaning of a number, independent of the vendor. The unit is in the comment."""

    # Queues: engines, gateways, brokers.
    REQUESTS_WAITING = "requests_waiting"  # requests accepted and not started
    REQUESTS_RUNNING = "requests_running"  # requests in progress
    # Requests that a gateway keeps in front of the engines. Apart from `requests_waiting`, because a gateway may also
    # repeat its engines' queues (EPP's averages do): a reader that has the engines adds only this.
    REQUESTS_HELD = "requests_held"
    REQUESTS_OPEN = "requests_open"  # requests that a gateway has passed on and that have not ended
    REQUESTS_FINISHED = "requests_finished"  # counter
    REQUESTS_FAILED = "requests_failed"  # counter: rejected, aborted or failed requests; activity all the same
    TOKENS_PROMPT = "tokens_prompt"  # counter: of the prompts, whether or not a cache had them
    TOKENS_COMPUTED = "tokens_computed"  # counter: those of the prompts that no cache had
    TOKENS_GENERATED = "tokens_generated"  # counter
    FIRST_TOKENS = "first_tokens"  # counter: requests that had their first token
    ITL_COUNT = "itl_count"  # counter: times between two tokens of a request
    ITL_SECONDS = "itl_seconds"  # counter: their sum
    KV_CACHE_USED = "kv_cache_used"  # ratio of the cache's blocks, mean over the engines of a target
    ENGINE_AWAKE = "engine_awake"  # 1 awake, 0 asleep (vLLM sleep mode): asleep is not idle capacity
    PREEMPTIONS = "preemptions"  # counter: requests that an engine set back to the queue, because its KV cache was full
    QUEUED_COUNT = "queued_count"  # counter: requests that left an engine's queue, with the time that they waited
    QUEUED_SECONDS = "queued_seconds"  # counter: the sum of these times
    SERVED_COUNT = "served_count"  # counter: requests with the time that an engine worked on them
    SERVED_SECONDS = "served_seconds"  # counter: the sum of these times
    REPLICAS_READY = "replicas_ready"  # ready backends of a gateway

    # GPUs.
    GPU_ENGINE_ACTIVE = "gpu_engine_active"  # ratio of time the graphics/compute engine was active
    GPU_UTILIZATION = "gpu_utilization"  # ratio of time any kernel ran: 1.0 with one small request; never load
    GPU_SM_ACTIVE = "gpu_sm_active"  # ratio
    GPU_SM_OCCUPANCY = "gpu_sm_occupancy"  # ratio of the warps that a multiprocessor can hold
    GPU_TENSOR_ACTIVE = "gpu_tensor_active"  # ratio
    GPU_DRAM_ACTIVE = "gpu_dram_active"  # ratio
    GPU_MEMORY_USED = "gpu_memory_used"  # bytes
    GPU_MEMORY_TOTAL = "gpu_memory_total"  # bytes
    GPU_PCIE_SENT = "gpu_pcie_sent"  # bytes per second, as the next three
    GPU_PCIE_RECEIVED = "gpu_pcie_received"
    GPU_NVLINK_SENT = "gpu_nvlink_sent"
    GPU_NVLINK_RECEIVED = "gpu_nvlink_received"
    GPU_POWER = "gpu_power"  # watts
    GPU_ENERGY = "gpu_energy"  # joules, counter
    GPU_TEMPERATURE = "gpu_temperature"  # degrees Celsius
    GPU_XID = "gpu_xid"  # the last Xid code; does not clear
    GPU_LOST = "gpu_lost"  # 1 after a fatal Xid if the GPU has no activity any more; NaN of any other GPU


class Attribution(StrEnum):
    """How a GPU's values are attributed to pods."""

    EXCLUSIVE = "exclusive"  # the whole GPU is one pod's
    MIG = "mig"  # a MIG instance is one pod's
    PROCESS = "process"  # measured per process, and the parts add up
    DEVICE = "device"  # shared, and only the device's value is known
    NONE = "none"  # not allocated, or no pod is named


class PodKey(NamedTuple):
    """A pod. If only its UID is known, as to a driver that has processes: no namespace, and the UID as its name."""

    namespace: str
    pod: str


class WorkloadKey(NamedTuple):
    """A workload of the configuration, or one trigger of a ScaledObject.

    trigger: which one, if a ScaledObject has several of Tidegate's; "" for the only or first one.
    """

    namespace: str
    name: str
    trigger: str = ""

    @property
    def label(self) -> str:
        """The name within its namespace: "chat", or "chat/decode" for a further trigger."""
        return f"{self.name}/{self.trigger}" if self.trigger else self.name

    def __str__(self) -> str:
        return f"{self.namespace}/{self.label}"


@dataclass(frozen=True, slots=True)
class Queue:
    """A model, a deployment or a broker's queue that scales by itself."""

    name: str


class Part(NamedTuple):
    """The measured part of one pod on a shared GPU. utilization: ratio. memory: bytes. NaN if not exposed."""

    pod: PodKey
    utilization: float
    memory: float


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU or MIG instance. Its identity is (uuid, instance); the other attributes may change.

    implied: the response has only its MIG instances, and its values are what each of them repeats (power, …).
    parts:   of a shared one, the parts per pod, which add up to the device's value; else empty.
    node:    the node that the exporter names; None if it names none.
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
    """A line that was not used. `line` counts from 1."""

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
    series:   name and labels, or the family's name, for messages.
    since:    POSIX seconds of the last response that had a missing series; NaN for the other reasons.
    """

    row: int
    quantity: Quantity
    at_least: float
    reason: GapReason
    series: str
    since: float = nan


class MissingSeries(NamedTuple):
    """The record, in a checkpoint, of a series that a process has exposed and that its last response did not contain.

    A GPU that has lost its pod label has such a record too, with `at` of the last response that had the label.

    identity:   the series, its quantity and its subject, or the labelled GPU, as `catalog.missing_series` writes
                and reads them.
    pods:       of a GPU, the pods that it is allocated to; empty for a queue.
    value:      the last valid value, in the unit of the response; NaN if there was none.
    at:         POSIX seconds of the last response that had it.
    gone_since: POSIX seconds since when no series has its labels; NaN while some do.
    had_mates:  series of other families had all its labels in that response.
    process_start: `process_start_time_seconds` of the process, by the target's clock; NaN if it is not exposed.
    """

    identity: bytes
    pods: tuple[PodKey, ...]
    value: float
    at: float
    gone_since: float
    had_mates: bool
    process_start: float


class EngineMemory(NamedTuple):
    """What an engine exposes of its memory; None: not exposed.

    kv_tokens: for which the KV cache has room. utilization: ratio of the GPU's memory that the engine takes, 0..1.
    """

    kv_tokens: int | None
    utilization: float | None


@dataclass(frozen=True, slots=True)
class Samples:
    """The values of one response: a row per subject, a column per quantity.

    values: shape (len(subjects), len(quantities)), in the unit of the column's quantity; NaN if unknown.
    at:     shape (len(subjects),), POSIX seconds when the row was measured: the oldest timestamp of its series, else
            the receipt.
    gaps:   what is incomplete. A queue's incomplete quantity is NaN in `values`. A GPU that is missing has a row of its
            own, with `at` of its last reading.
    missing: records of the missing series, at most `missing_series.MAX_STORED`.
    histograms: the latencies of its subjects, as counts by bucket.
    memory:  of the engine with the smallest KV cache; None if none is exposed.
    """

    kind: str
    subjects: tuple[Subject, ...]
    quantities: tuple[Quantity, ...]
    values: Floats
    at: Floats
    dropped: tuple[Dropped, ...] = ()
    gaps: tuple[Gap, ...] = ()
    missing: tuple[MissingSeries, ...] = ()
    histograms: LatencyHistograms = NO_HISTOGRAMS
    memory: EngineMemory | None = None

    def column(self, quantity: Quantity) -> Floats:
        """The values of one quantity, shape (len(subjects),); all NaN if the response does not have it."""
        if quantity not in self.quantities:
            return np.full(len(self.subjects), np.nan)
        values: Floats = self.values[:, self.quantities.index(quantity)]
        return values


class Role(StrEnum):
    """The purpose of a target."""

    PODS = "pods"  # an engine in a pod: ends with the pod
    GATEWAY = "gateway"  # exists at zero replicas and shows the next request
    GPUS = "gpus"  # a node's GPUs: dcgm-exporter


@dataclass(frozen=True, slots=True)
class Credentials:
    """Authentication of a target and to it. Files are read at each use, because kubelet rotates them."""

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
    """A metrics endpoint.

    kind:  a kind of the catalog ("vllm", "dcgm", …) or "auto".
    owner: the workload of a pod or gateway; None for a node: its GPUs name their pods.
    pod:   the pod, if it is known: a new pod with an old one's address is another target.
    node:  the node of an exporter's pod, whose GPUs are those of the node's pods; None if unknown.
    max_age_s: age at which its values are stale, if it differs from the configuration's: a database has values as old
           as its own scrapes.
    """

    url: str
    kind: str
    role: Role
    owner: WorkloadKey | None = None
    access: Credentials = field(default=Credentials())
    pod: PodKey | None = None
    node: str | None = None
    max_age_s: float | None = None
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # A scrape looks up its target twenty times, and to hash eight fields and those of `access` takes 1.5 us.
        parts = (self.url, self.kind, self.role, self.owner, self.access, self.pod, self.node, self.max_age_s)
        object.__setattr__(self, "_hash", hash(parts))

    def __hash__(self) -> int:
        return self._hash

    @property
    def named(self) -> str:
        """The URL for people, with the name of its pod: addresses are reused."""
        url = without_user(self.url)
        return url if self.pod is None else f"{self.pod.namespace}/{self.pod.pod} ({url})"

    def __str__(self) -> str:
        url = without_user(self.url)
        return f"{self.role}:{self.owner}:{url}" if self.owner else f"{self.role}:{url}"


def without_user_info(url: str) -> str:
    """A URL without user and password, which identifies a target."""
    if "@" not in url:
        return url
    try:
        parts = urlsplit(url)
    except ValueError:
        return "not a URL"
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def without_user(url: str) -> str:
    """A URL for logs and metrics: without user, password, and the values of its query, which may be an API key.

    A value is replaced by 16 bits of its digest, so that two targets that differ by a value stay distinct:
    `http://p/metrics?apikey=secret` is `http://p/metrics?apikey=~8f3b` or alike. The queries of Tidegate's own schemes
    (promql+http, redis) hold no credentials and stay.
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
    """Untrusted text without control characters, which could move a cursor or end a line."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


class FailureKind(StrEnum):
    """Why a scrape failed. A closed list: it is a label on /metrics."""

    REFUSED = "refused"  # no listener, a broken connection, or no driver
    TIMEOUT = "timeout"
    STATUS = "status"  # an HTTP status other than 200
    TOO_LARGE = "too_large"
    TLS = "tls"
    CREDENTIALS = "credentials"  # a token, password or certificate file that cannot be read
    EMPTY = "empty"  # 200 with an empty body, as from dcgm-exporter while it reloads
    UNREADABLE = "unreadable"  # no line is a sample of its kind
    PARTIAL = "partial"  # it reports that a part is missing, or not valid yet
    INTERNAL = "internal"  # a bug of Tidegate: please report


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a scrape failed. detail: a sentence for messages."""

    kind: FailureKind
    detail: str


@dataclass(frozen=True, slots=True)
class ScrapeResult:
    """One scrape of one target: the samples, or the failure.

    at:     POSIX seconds of receipt.
    took_s: seconds from the request to the last byte.
    """

    target: Target
    at: float
    took_s: float
    outcome: Samples | Failure


class GpuPart(NamedTuple):
    """GPUs of one model, in whole GPUs: a MIG slice or a replica of a shared GPU is a part of one."""

    model: str | None
    whole: float


class ReplicaCount(NamedTuple):
    """A workload's replicas in the cluster.

    at:       POSIX seconds of this state.
    existing: replicas in any state, but not terminating; None if unknown.
    pending:  replicas that have not started on a node (unschedulable, or pulling the image).
    gpus:     GPUs and MIG instances that its running pods request, terminating ones included; None if unknown.
    leaving:  terminating replicas that still run, and hold their GPUs.
    parts:    those GPUs in whole ones, by model; empty if only their number is known.
    """

    wanted: int
    ready: int
    at: float
    pending: int = 0
    gpus: int | None = None
    existing: int | None = None
    leaving: int = 0
    parts: tuple[GpuPart, ...] = ()
