"""Judges what binds a workload, from signals of its profile that move together. Pure.

Each rule looks at means over busy time: a workload that works one hour a day is judged by that hour. A rule that fits
returns a finding with its evidence; without its signals it cannot fit. If two resources fit, or none of the known ones
does, the verdict is `ambiguous`; without the signals of any rule it is `not_known`, with what is missing.

Sources of the thresholds: NVIDIA's DCGM user guide, "Profiling metrics" (docs.nvidia.com/datacenter/dcgm, feature
overview): an SM activity of 0.8 is necessary for effective use, below 0.5 use is likely ineffective; 0.8 is the most
that DRAM activity reaches in practice; a tensor activity of 1 is an instruction in every other cycle. Engine activity
alone says that some kernel runs: 1.0 with one small request.

Worked example: while it works, engines are active 0.97 of the time, tensor pipes 0.12 and memory 0.71: the verdict is
`memory_bandwidth`, with these two numbers as evidence, and decoding at small batches as the usual cause.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import isnan

from scaler.signals.usage import FULL, Distribution, Usage

from .profile import P95, Profile


class Verdict(StrEnum):
    """What binds a workload."""

    COMPUTE = "compute"
    MEMORY_BANDWIDTH = "memory_bandwidth"
    MEMORY_CAPACITY = "memory_capacity"
    INPUT_STARVATION = "input_starvation"
    LAUNCH_OVERHEAD = "launch_overhead"
    INTERCONNECT = "interconnect"
    IDLE = "idle"
    OVERSIZED = "oversized"
    UNDERSIZED = "undersized"
    OVERSIZED_MEMORY = "oversized_gpu_memory_utilization"
    AMBIGUOUS = "ambiguous"
    UNMEASURED = "not_known"


CAUSES = {
    Verdict.COMPUTE: "large batches or long prompts; a faster GPU, or lower precision, helps",
    Verdict.MEMORY_BANDWIDTH: "decoding at small batches; quantised weights, larger batches or more bandwidth help",
    Verdict.MEMORY_CAPACITY: "the KV cache is too small for the requests; an FP8 cache, a shorter context or more "
    "memory help",
    Verdict.INPUT_STARVATION: "the host is the limit: tokenizer, data loading, CPU limits or network",
    Verdict.LAUNCH_OVERHEAD: "many small kernels; CUDA graphs, fused kernels or larger batches help",
    Verdict.INTERCONNECT: "tensor parallelism over a slow link, or offloading to host memory",
    Verdict.IDLE: "kept warm without work; let it sleep, or share the GPU",
    Verdict.OVERSIZED: "the GPU is larger than the work; a smaller GPU or a MIG slice may do",
    Verdict.UNDERSIZED: "more work than the replicas can do; more replicas, or a faster GPU",
    Verdict.OVERSIZED_MEMORY: "gpu_memory_utilization reserves a KV cache that is not used; lower it to share the GPU",
    Verdict.AMBIGUOUS: "no single resource explains it",
    Verdict.UNMEASURED: "the signals are not exposed",
}

SM_EFFECTIVE, SM_INEFFECTIVE = 0.8, 0.5  # DCGM user guide
ENGINE_BUSY = 0.8  # of the time some kernel runs
DRAM_REACHED = 0.8  # DCGM user guide: the most in practice
DRAM_FULL = 0.75 * DRAM_REACHED
TENSOR_FULL = 0.5  # of every other cycle; dense training reaches 0.4 to 0.6, dcgmproftester's matrices 0.93
LOW = 0.25  # of warps that an SM can hold, and of the pipes: kernels that fill a quarter of the GPU
IDLE_RATIO = 0.05  # of the time with work: the average utilisation over 23,000 clusters is 0.05 (Cast AI)
QUEUED_RATIO = 0.05  # of the time with a queue before a full GPU: half an hour in ten hours
PREEMPTED_RATIO = 0.01  # preemptions per finished request
SPARE = 0.3  # of the KV cache or the memory: twice as much would still leave two fifths free
# One direction of PCIe 4.0 x16: 16 GT/s x 16 lanes x 128/130 / 8 bits = 31.5 GB/s, of which 60 %. NVLink 3 (A100) has
# 600 GB/s both ways, of which half.
PCIE_FULL, NVLINK_FULL = 0.6 * 31.5e9, 300e9


@dataclass(frozen=True, slots=True)
class Indication:
    """One thing that the signals show. evidence: sentences with the numbers, never empty."""

    verdict: Verdict
    evidence: tuple[str, ...]

    @property
    def cause(self) -> str:
        """The usual cause, and what helps."""
        return CAUSES[self.verdict]


@dataclass(frozen=True, slots=True)
class Binding:
    """The verdict on a workload. also: what else the signals show. missing: signals that are not exposed."""

    main: Indication
    also: tuple[Indication, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        return self.main.verdict

    def to_document(self) -> dict[str, object]:
        """Plain JSON-able data."""
        return {
            "verdict": str(self.verdict),
            "evidence": list(self.main.evidence),
            "cause": self.main.cause,
            "also": [{"verdict": str(each.verdict), "evidence": list(each.evidence)} for each in self.also],
            "missing": list(self.missing),
        }


def judge(profile: Profile) -> Binding:
    """The verdict on a profile."""
    missing = missing_signals(profile)
    sizes = [found for rule in _SIZES if (found := rule(profile)) is not None]
    idle = _idle(profile)
    if idle is not None:
        return Binding(idle, tuple(each for each in sizes if each.verdict is Verdict.OVERSIZED_MEMORY), missing)
    bound = [found for rule in _RESOURCES if (found := rule(profile)) is not None]
    undersized = [each for each in sizes if each.verdict is Verdict.UNDERSIZED]
    if undersized:
        rest = [each for each in sizes if each.verdict is not Verdict.UNDERSIZED]
        return Binding(undersized[0], (*bound, *rest), missing)
    if len(bound) == 1:
        return Binding(bound[0], tuple(sizes), missing)
    if bound:
        evidence = tuple(f"{each.verdict}: {sentence}" for each in bound for sentence in each.evidence)
        return Binding(Indication(Verdict.AMBIGUOUS, evidence), tuple(sizes), missing)
    if sizes:
        return Binding(sizes[0], tuple(sizes[1:]), missing)
    measured = tuple(_sentence(profile.of(usage), name) for usage, name in _RATIOS if _busy(profile, usage) is not None)
    if measured and not _undecidable(profile):
        return Binding(Indication(Verdict.AMBIGUOUS, measured), (), missing)
    return Binding(Indication(Verdict.UNMEASURED, (f"not exposed: {', '.join(missing)}",)), (), missing)


_RATIOS = (
    (Usage.ENGINE, "GPU engines were active"),
    (Usage.SM, "multiprocessors were active"),
    (Usage.OCCUPANCY, "multiprocessors held warps"),
    (Usage.TENSOR, "tensor pipes were active"),
    (Usage.DRAM, "GPU memory was active"),
    (Usage.KV_CACHE, "the KV cache was used"),
)
_SIGNALS = (
    (Usage.ENGINE, "GPU engine activity (DCGM_FI_PROF_GR_ENGINE_ACTIVE)"),
    (Usage.SM, "SM activity (DCGM_FI_PROF_SM_ACTIVE)"),
    (Usage.OCCUPANCY, "SM occupancy (DCGM_FI_PROF_SM_OCCUPANCY)"),
    (Usage.TENSOR, "tensor activity (DCGM_FI_PROF_PIPE_TENSOR_ACTIVE)"),
    (Usage.DRAM, "memory activity (DCGM_FI_PROF_DRAM_ACTIVE)"),
    (Usage.MEMORY, "memory used (DCGM_FI_DEV_FB_USED)"),
    (Usage.RUNNING_ALL, "running requests"),
    (Usage.WAITING, "waiting requests"),
    (Usage.KV_CACHE, "KV-cache use"),
)


def missing_signals(profile: Profile) -> tuple[str, ...]:
    """The signals that the rules use and the profile does not have."""
    return tuple(name for usage, name in _SIGNALS if not profile.of(usage).seconds > 0.0)


def _undecidable(profile: Profile) -> bool:
    """Whether no resource could be judged: neither pipes, nor memory activity, nor SMs are known."""
    return all(_busy(profile, usage) is None for usage in (Usage.SM, Usage.TENSOR, Usage.DRAM))


def _busy(profile: Profile, usage: Usage) -> float | None:
    """The mean over busy time; None if unknown."""
    value = profile.of(usage).busy_mean
    return None if isnan(value) else value


def _sentence(each: Distribution, what: str) -> str:
    return f"{what} {percent(each.busy_mean)} while it worked (p95 {percent(each.quantiles[P95])})"


def percent(ratio: float) -> str:
    """A ratio for people: "7.4 %", "97 %"."""
    return f"{100 * ratio:.1f} %" if ratio < 0.1 else f"{100 * ratio:.0f} %"  # noqa: PLR2004 - one digit below 10 %


def _finding(profile: Profile, verdict: Verdict, *usages: Usage) -> Indication:
    names = dict(_RATIOS)
    return Indication(verdict, tuple(_sentence(profile.of(usage), names[usage]) for usage in usages))


def _idle(profile: Profile) -> Indication | None:
    engine, busy = profile.of(Usage.ENGINE), profile.busy_ratio
    requests = not isnan(profile.of(Usage.RUNNING_ALL).mean + profile.of(Usage.WAITING).mean)
    if not isnan(engine.mean):
        if not engine.mean <= IDLE_RATIO or (requests and not busy <= IDLE_RATIO):
            return None
        evidence = [
            f"GPU engines were active {percent(engine.mean)} of the time (p95 {percent(engine.quantiles[P95])})"
        ]
    else:
        if not requests or not busy <= IDLE_RATIO:
            return None
        evidence = []
    if requests:
        evidence.append(f"requests were in hand {percent(busy)} of the time")
    return Indication(Verdict.IDLE, tuple(evidence))


def _compute(profile: Profile) -> Indication | None:
    sm, tensor, dram = (_busy(profile, usage) for usage in (Usage.SM, Usage.TENSOR, Usage.DRAM))
    if tensor is not None and tensor >= TENSOR_FULL:
        return _finding(profile, Verdict.COMPUTE, Usage.TENSOR)
    # Full multiprocessors that do not wait for memory compute, on whatever pipe.
    if sm is not None and sm >= SM_EFFECTIVE and dram is not None and dram < DRAM_FULL / 2:
        return _finding(profile, Verdict.COMPUTE, Usage.SM, Usage.DRAM)
    return None


def _memory_bandwidth(profile: Profile) -> Indication | None:
    dram = _busy(profile, Usage.DRAM)
    if dram is None or dram < DRAM_FULL:
        return None
    shown = [usage for usage in (Usage.DRAM, Usage.TENSOR) if _busy(profile, usage) is not None]
    return _finding(profile, Verdict.MEMORY_BANDWIDTH, *shown)


def _memory_capacity(profile: Profile) -> Indication | None:
    cache, preempted = profile.of(Usage.KV_CACHE), _preempted(profile)
    if cache.busy_mean >= FULL or (cache.quantiles[P95] >= FULL and preempted >= PREEMPTED_RATIO):
        evidence = [_sentence(cache, "the KV cache was used")]
        if preempted > 0.0:
            evidence.append(f"{preempted:.2g} preemptions per finished request")
        return Indication(Verdict.MEMORY_CAPACITY, tuple(evidence))
    return None


def _preempted(profile: Profile) -> float:
    """Preemptions per finished request; NaN if unknown."""
    finished = profile.of(Usage.REQUESTS).mean
    return profile.of(Usage.PREEMPTED).mean / finished if finished > 0.0 else float("nan")


def _input_starvation(profile: Profile) -> Indication | None:
    engine, running = _busy(profile, Usage.ENGINE), _busy(profile, Usage.RUNNING_ALL)
    # Without requests, low activity may be pauses. On a slice the ceiling may be all that the engine can show.
    ceiling = profile.of(Usage.CEILING).busy_mean
    if engine is None or running is None or running < 1.0 or not engine / ceiling < SM_INEFFECTIVE:
        return None
    evidence = (_sentence(profile.of(Usage.ENGINE), "GPU engines were active"), f"{running:.1f} requests were running")
    return Indication(Verdict.INPUT_STARVATION, evidence)


def _launch_overhead(profile: Profile) -> Indication | None:
    engine, sm, occupancy = (_busy(profile, usage) for usage in (Usage.ENGINE, Usage.SM, Usage.OCCUPANCY))
    if engine is None or engine < ENGINE_BUSY:
        return None
    empty = [
        usage
        for usage, value, limit in ((Usage.SM, sm, SM_INEFFECTIVE), (Usage.OCCUPANCY, occupancy, LOW))
        if value is not None and value < limit
    ]
    # Large matrices run at a low occupancy and fill the tensor pipes; reading weights fills the memory.
    used = any((value := _busy(profile, usage)) is not None and value >= LOW for usage in (Usage.TENSOR, Usage.DRAM))
    full = sm is not None and sm >= SM_EFFECTIVE
    return None if not empty or used or full else _finding(profile, Verdict.LAUNCH_OVERHEAD, Usage.ENGINE, *empty)


def _interconnect(profile: Profile) -> Indication | None:
    links = ((Usage.PCIE, "PCIe", PCIE_FULL), (Usage.NVLINK, "NVLink", NVLINK_FULL))
    evidence = tuple(
        f"{name} carried {profile.of(usage).busy_mean / 1e9:.1f} GB/s while it worked"
        for usage, name, limit in links
        if profile.of(usage).busy_mean >= limit
    )
    return Indication(Verdict.INTERCONNECT, evidence) if evidence else None


def _undersized(profile: Profile) -> Indication | None:
    queued, waiting = profile.of(Usage.QUEUED_FULL).mean, profile.of(Usage.WAITING).quantiles[P95]
    if not queued >= QUEUED_RATIO:
        return None
    length = "" if isnan(waiting) else f" (p95 {waiting:.0f} waiting)"
    full = f"requests waited while the GPUs or the KV cache were at least {percent(FULL)} full"
    evidence = [f"{full}, {percent(queued)} of the time{length}"]
    if (preempted := _preempted(profile)) >= PREEMPTED_RATIO:
        evidence.append(f"{preempted:.2g} preemptions per finished request")
    return Indication(Verdict.UNDERSIZED, tuple(evidence))


def _oversized_memory(profile: Profile) -> Indication | None:
    cache, memory, waiting = (profile.of(usage) for usage in (Usage.KV_CACHE, Usage.MEMORY, Usage.WAITING))
    if isnan(memory.mean) or not cache.peak <= SPARE or waiting.quantiles[P95] > 0.0 or _preempted(profile) > 0.0:
        return None
    held = f"the engine holds {memory.mean / 2**30:.1f} GiB of GPU memory"
    total = profile.of(Usage.MEMORY_TOTAL).mean
    of_total = "" if isnan(total) else f" of {total / 2**30:.0f} GiB"
    return Indication(
        Verdict.OVERSIZED_MEMORY, (f"the KV cache was used {percent(cache.peak)} at most", f"{held}{of_total}")
    )


def _oversized(profile: Profile) -> Indication | None:
    """Neither the memory nor any pipe of the GPU is used by half at most times."""
    memory, total = profile.of(Usage.MEMORY).peak, profile.of(Usage.MEMORY_TOTAL).mean
    used = {usage: profile.of(usage).quantiles[P95] for usage in (Usage.SM, Usage.TENSOR, Usage.DRAM)}
    pipes = {usage: value for usage, value in used.items() if not isnan(value)}
    compute = Usage.SM in pipes or Usage.TENSOR in pipes
    if Usage.DRAM not in pipes or not compute or not memory <= total / 2 or profile.of(Usage.WAITING).mean > 1.0:
        return None
    limits = {Usage.SM: SM_INEFFECTIVE, Usage.TENSOR: TENSOR_FULL / 2, Usage.DRAM: DRAM_FULL / 2}
    if any(value >= limits[usage] for usage, value in pipes.items()):
        return None
    held = f"at most {memory / 2**30:.1f} of {total / 2**30:.0f} GiB of GPU memory were used"
    return Indication(Verdict.OVERSIZED, (held, *_finding(profile, Verdict.OVERSIZED, *pipes).evidence))


def oversized_share(profile: Profile) -> float | None:
    """The part of its GPUs, 0..1, that an oversized workload never used; 0 without that verdict; None if its signals
    are missing.

    Memory, multiprocessors, tensor pipes and bandwidth are bought together, so the one with the highest peak of the
    last days says how much of a GPU would do. DRAM activity reaches 0.8 at most in practice (DCGM user guide). As in
    the Vertical Pod Autoscaler, what is requested above a peak of usage is what can be given back.
    """
    memory = profile.of(Usage.MEMORY).peak / profile.of(Usage.MEMORY_TOTAL).mean
    dram = profile.of(Usage.DRAM).peak / DRAM_REACHED
    compute = [peak for usage in (Usage.SM, Usage.TENSOR) if not isnan(peak := profile.of(usage).peak)]
    if isnan(memory + dram) or not compute:
        return None
    return 0.0 if _oversized(profile) is None else max(0.0, 1.0 - max(memory, dram, *compute))


_Rule = Callable[[Profile], Indication | None]
_RESOURCES: Sequence[_Rule] = (
    _compute,
    _memory_bandwidth,
    _memory_capacity,
    _input_starvation,
    _launch_overhead,
    _interconnect,
)
_SIZES: Sequence[_Rule] = (_undersized, _oversized, _oversized_memory)
