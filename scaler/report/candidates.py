"""Ranks GPU models for one workload: which hold it, how fast it is there, how many replicas and what they cost. Pure.

The replica stays as it is: the same model, batch, context and number of GPUs. A GPU model holds it if its memory per
GPU is enough with a margin. Its time between tokens is moved there by `speed`, with the band of that. Then

    tokens per second of a replica = batch / seconds
    replicas = ceil(tokens / (tokens per second of a replica * (1 - headroom)))
    cost per hour = replicas * GPUs of a replica * price of a GPU-hour
    cost per million tokens = cost per hour / (3600 * tokens) * 1e6

each for the predicted time and for both ends of its band. The objective is met if even the slow end meets it, and not
met if even the fast end does not. Everything else is not known, and each row says why.

Worked example: 60 requests in a step of 20 ms are 3,000 tokens per second; with a headroom of 0.2 and 10,000 tokens per
second in all, ceil(10000 / 2400) = 5 replicas. On one H100 each, at 6.88 dollars, they cost 34.40 per hour and 0.96 per
million tokens. A band of 18 to 26 ms makes it 4 to 6 replicas; an objective of 25 ms is then not known to be met.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import ceil, inf, isfinite, isnan
from typing import NamedTuple

from scaler.policy.prices import PriceList

from .gpus import GpuModel, find_model
from .speed import MEASURED_GPUS, MeasuredTime, Prediction, StepFit, Unsupported, fit_history, move, speed_of

# vLLM leaves as much by default (gpu_memory_utilization 0.9, docs.vllm.ai, "Engine Arguments", read 2026-11-26).
MEMORY_MARGIN = 0.1
# Replicas of several GPUs were measured on NVLink of 900 and 1,800 GB/s: a link that is slower or faster than twice.
MOST_LINK_RATIO = 2.0
MILLION, HOUR = 1e6, 3600.0


class SloVerdict(StrEnum):
    """Whether the time between tokens meets its objective on a GPU model."""

    MET = "met"
    NOT_MET = "not met"
    UNDECIDED = "not known"


@dataclass(frozen=True, slots=True)
class RunningWorkload:
    """A workload as it was observed. Raises ValueError if a number is missing (NaN) or out of its range.

    device:      its GPU, as DCGM or the node's label names it.
    gpus:        GPUs of one replica.
    memory:      bytes that it needs on each of them.
    precision:   of its weights: bf16, fp8, fp4, int4.
    batch:       requests in a step of one replica, at the operating point.
    now:         the operating point: work of one GPU in a step, and its mean seconds.
    history:     such points at other batches and contexts.
    tokens:      generated tokens per second of all replicas together.
    requests:    requests per second of all replicas together; None if not known.
    objective:   seconds between tokens; None if there is none.
    headroom:    the part of a replica's capacity that is kept free.
    """

    device: str
    gpus: int
    memory: float
    precision: str
    batch: float
    now: MeasuredTime
    history: tuple[MeasuredTime, ...]
    tokens: float
    requests: float | None = None
    objective: float | None = None
    headroom: float = 0.2

    def __post_init__(self) -> None:
        for key in ("gpus", "memory", "batch"):
            _require(getattr(self, key) > 0, f"{key}: must be above 0", getattr(self, key))
        _require(self.now.seconds > 0, "now.seconds: must be above 0", self.now.seconds)
        _require(self.tokens >= 0, "tokens: must be at least 0", self.tokens)
        _require(0 <= self.headroom < 1, "headroom: must be at least 0 and below 1", self.headroom)


class Serving(NamedTuple):
    """What a GPU model does for the workload. seconds: between tokens. cost_*: None without price or rate."""

    seconds: Prediction
    tokens_per_replica: Prediction
    replicas: Prediction
    objective: SloVerdict | None
    cost_per_hour: Prediction | None
    cost_per_million_tokens: Prediction | None
    cost_per_million_requests: Prediction | None


@dataclass(frozen=True, slots=True)
class GpuOption:
    """One row of the ranking.

    fits:       whether a replica fits; None if the memory of the GPU is not known.
    least_gpus: GPUs of this model that would hold a replica, if its memory divides evenly.
    serving:    None if the speed is not known, or the replica does not fit.
    reasons:    why it does not fit, or what is not known.
    evidence:   what the numbers rest on.
    """

    gpu: str
    is_present: bool
    fits: bool | None
    least_gpus: int | None
    serving: Serving | None
    reasons: tuple[str, ...]
    evidence: tuple[str, ...]


def rank_gpus(workload: RunningWorkload, models: Mapping[str, GpuModel], prices: PriceList) -> tuple[GpuOption, ...]:
    """All GPU models, best first: cheapest that meets the objective, then not known, then not met, then out.

    The present GPU is among them with its measured time, also if the table does not have it.
    """
    present = find_model(models, workload.device)
    fit = fit_history(workload.history)
    options = [_option(workload, model, present, fit, prices) for model in models.values() if model is not present]
    options.append(_present_option(workload, present, prices))
    return tuple(sorted(options, key=_rank))


def _require(is_valid: bool, bound: str, value: float) -> None:
    if not is_valid or not isfinite(value):
        raise ValueError(f"RunningWorkload.{bound} and finite, got {value:g}")


def _present_option(workload: RunningWorkload, model: GpuModel | None, prices: PriceList) -> GpuOption:
    seconds = workload.now.seconds
    name = model.name if model is not None else workload.device
    serving, missing = _serve(workload, Prediction(seconds, seconds, seconds), prices.hour(workload.device))
    unlisted = () if model is not None else (f"{workload.device} is not in the table of GPUs",)
    least = _least_gpus(workload, model) if model is not None else None
    return GpuOption(name, True, True, least, serving, (*unlisted, *missing), (f"measured: {seconds * 1e3:.1f} ms",))


def _option(
    workload: RunningWorkload, model: GpuModel, present: GpuModel | None, fit: StepFit | Unsupported, prices: PriceList
) -> GpuOption:
    least = _least_gpus(workload, model)
    if least is None or model.memory is None:
        return GpuOption(model.name, False, None, None, None, (f"{model.name} has no memory in the table",), ())
    usable = model.memory.value * (1.0 - MEMORY_MARGIN)
    sizes = f"needs {workload.memory / 1e9:.1f} GB on each of {workload.gpus}, has {usable / 1e9:.1f} GB with margin"
    if workload.memory > usable:
        return GpuOption(model.name, False, False, least, None, (f"memory: {sizes}",), (model.memory.source,))
    seconds = _moved(workload, model, present, fit)
    if isinstance(seconds, Unsupported):
        return GpuOption(model.name, False, True, least, None, (seconds.reason,), (sizes, model.memory.source))
    serving, missing = _serve(workload, seconds, prices.hour(model.name))
    if least < workload.gpus:
        missing = (*missing, f"{least} would hold a replica; the speed with fewer GPUs is not known")
    return GpuOption(
        model.name, False, True, least, serving, missing, (sizes, *_evidence(workload, model, present, fit))
    )


def _moved(
    workload: RunningWorkload, model: GpuModel, present: GpuModel | None, fit: StepFit | Unsupported
) -> Prediction | Unsupported:
    if present is None:
        return Unsupported(f"{workload.device}, where it was measured, is not in the table of GPUs")
    here = speed_of(present, workload.precision)
    if isinstance(here, Unsupported):
        return here
    there = speed_of(model, workload.precision)
    if isinstance(there, Unsupported):
        return there
    if isinstance(fit, Unsupported):
        return fit
    return _link_difference(workload, present, model) or move(fit, workload.now, here, there)


def _link_difference(workload: RunningWorkload, present: GpuModel, model: GpuModel) -> Unsupported | None:
    """Why the communication of a replica with several GPUs is not known on another model; None if it is."""
    if workload.gpus == 1:
        return None
    here, there = present.interconnect, model.interconnect
    if here is None or there is None:
        name = present.name if here is None else model.name
        return Unsupported(f"{name} has no interconnect in the table, a replica has {workload.gpus} GPUs")
    ratio = there.value / here.value
    if 1.0 / MOST_LINK_RATIO <= ratio <= MOST_LINK_RATIO:
        return None
    return Unsupported(f"interconnect changes by a factor of {ratio:.2f}, measured were 0.50 to 2.00")


def _evidence(
    workload: RunningWorkload, model: GpuModel, present: GpuModel | None, fit: StepFit | Unsupported
) -> tuple[str, ...]:
    """What a moved time rests on: the fit, the shares at the operating point, the figures of both GPUs."""
    if isinstance(fit, Unsupported) or present is None or present.bandwidth is None or model.bandwidth is None:
        return ()
    fixed, memory, arithmetic = fit.shares(workload.now.work)
    unmeasured = tuple(
        f"{each.name} is not among the measured GPUs, its generation {each.generation} is"
        for each in (present, model)
        if each.name not in MEASURED_GPUS
    )
    return (
        f"fit of {fit.points} points, off by {fit.error:.1%} in the median",
        f"fixed {fixed:.0%}, memory {memory:.0%}, arithmetic {arithmetic:.0%} of the time",
        f"{present.name}: {present.bandwidth.value / 1e12:.2f} TB/s, {present.bandwidth.source}",
        f"{model.name}: {model.bandwidth.value / 1e12:.2f} TB/s, {model.bandwidth.source}",
        *unmeasured,
    )


def _serve(workload: RunningWorkload, seconds: Prediction, price: float) -> tuple[Serving, tuple[str, ...]]:
    """The numbers of a row, and what of them is not known. price: of a GPU-hour, NaN if there is none."""
    per_replica = _falling(seconds, lambda each: workload.batch / each)
    usable = 1.0 - workload.headroom
    replicas = _rising(seconds, lambda each: float(max(1, ceil(workload.tokens * each / workload.batch / usable))))
    hour = None if isnan(price) else _rising(replicas, lambda each: each * workload.gpus * price)
    tokens, requests = _per_million(hour, workload.tokens), _per_million(hour, workload.requests)
    missing = ("no price of a GPU-hour",) if hour is None else ()
    return Serving(seconds, per_replica, replicas, _objective(workload, seconds), hour, tokens, requests), missing


def _per_million(cost_per_hour: Prediction | None, rate: float | None) -> Prediction | None:
    if cost_per_hour is None or not rate:
        return None
    return _rising(cost_per_hour, lambda each: each / (HOUR * rate) * MILLION)


def _rising(estimate: Prediction, function: Callable[[float], float]) -> Prediction:
    return Prediction(*map(function, estimate))


def _falling(estimate: Prediction, function: Callable[[float], float]) -> Prediction:
    return Prediction(function(estimate.value), function(estimate.high), function(estimate.low))


def _objective(workload: RunningWorkload, seconds: Prediction) -> SloVerdict | None:
    if workload.objective is None:
        return None
    if seconds.high <= workload.objective:
        return SloVerdict.MET
    return SloVerdict.NOT_MET if seconds.low > workload.objective else SloVerdict.UNDECIDED


def _least_gpus(workload: RunningWorkload, model: GpuModel) -> int | None:
    if model.memory is None:
        return None
    return max(1, ceil(workload.memory * workload.gpus / (model.memory.value * (1.0 - MEMORY_MARGIN))))


def _rank(option: GpuOption) -> tuple[int, float, float, str]:
    """Sorts by what is known and met, then by cost, then by time, then by name."""
    serving = option.serving
    if serving is None:
        return (4 if option.fits is False else 3, inf, inf, option.gpu)
    group = {SloVerdict.UNDECIDED: 1, SloVerdict.NOT_MET: 2}.get(serving.objective or SloVerdict.MET, 0)
    cost = serving.cost_per_hour.value if serving.cost_per_hour is not None else inf
    return group, cost, serving.seconds.value, option.gpu
