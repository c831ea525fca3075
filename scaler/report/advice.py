"""Turns a profile, a config.json and the table of GPUs into advice, as sections of the report. Pure.

- `memory_section`: what a model takes on each GPU model, and what fits beside it.
- `engine_section`: what engines expose of their memory, beside that estimate.
- `training_section`: what its training takes by ZeRO stage, and with LoRA.
- `gpu_section`: each GPU model for a workload: whether it fits, how fast it is there, how many replicas, at what cost.
- `slice_section`: what a workload would do on MIG slices, and whether to slice.

Every row says what its numbers rest on, or what is missing for one.

Worked example: `gpu_section(profile, deployment, models, prices)` of a workload that was profiled from a Prometheus
history on an H200 has a row `B200 | fits | 14.1 (10.6 to 19.6) ms | met | 2 (1 to 2) | 13.38 | ...`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isnan, nan
from types import MappingProxyType

import numpy as np

from exporter.model import Floats
from scaler.policy.prices import PriceList
from scaler.signals.usage import Usage

from .architecture import Architecture
from .binding import percent
from .candidates import MEMORY_MARGIN, GpuOption, RunningWorkload, rank_gpus
from .gpus import GpuModel, find_model
from .kv_cache import LayerCache, context_bytes, layer_caches
from .layers import LatentAttention
from .memory import BATCH_TOKENS, GIB, SEQUENCES, ServingMemory, serving
from .mig import MigModel
from .partition import allowed_speeds, compare, plan
from .profile import P95, OperatingPoint, Profile
from .saturation import SliceSpeeds, speeds_of
from .slice_speed import GpuActivity, SliceSpeed, SpeedEvidence, predict
from .speed import MeasuredTime, Prediction
from .statement import UNKNOWN, ReportSection
from .training import ZeroStage, full_of, lora
from .weights import count_by_use, resolve_precision, weight_bytes
from .work import GpuSplit, ModelShape, StepLoad, decode_work

# vLLM's defaults for a step on a GPU of less than 70 GiB, and on an A100 (`EngineArgs`); else those of `memory`.
SMALL_GPU, SMALL_BATCH_TOKENS, SMALL_SEQUENCES = 70 * GIB, 2048, 256
# benchmarks/RIGHTSIZING.md: no way to move it does better than to leave it as it is.
PREFILL_MOVE = "on another GPU of one generation it was 0.5 to 2.1 times that before, in 19 of 20 public measurements"
LORA_RANK = 16  # a usual one
WHOLE_GPU = 0.9  # of its memory: a workload that sees less runs on a slice
# Names of precisions in a config.json, and in `speed.ARITHMETIC`. A method that is not listed is not known there.
_PRECISIONS = {"bfloat16": "bf16", "float16": "bf16", "bf16": "bf16", "fp16": "bf16"}
_METHODS = {"fp8": "fp8", "mxfp4": "fp4", "awq": "int4", "gptq": "int4", "nvfp4": "fp4"}


@dataclass(frozen=True, slots=True)
class Deployment:
    """How a model is served.

    gpu:             the GPU model that it runs on, as the table or DCGM names it; "" if it does not run yet.
    tensor_parallel: GPUs of one replica.
    kv_precision:    of the KV cache; None: the model's.
    max_model_len:   tokens of a sequence; None: the model's context.
    objective:       seconds between tokens; None if there is none.
    """

    model: Architecture
    gpu: str = ""
    tensor_parallel: int = 1
    kv_precision: str | None = None
    max_model_len: int | None = None
    objective: float | None = None


def memory_section(deployment: Deployment, models: Mapping[str, GpuModel], prices: PriceList) -> ReportSection:
    """The memory of a model on one GPU of each kind, cheapest first. Raises UnknownArchitecture."""
    found = []
    for model in models.values():
        if model.memory is None:
            continue
        memory = _serving(deployment, model.name, model.memory.value)
        hour = prices.hour(model.name) * deployment.tensor_parallel
        fits = memory.available is not None and memory.available > 0.0
        cells = (
            model.name,
            f"{model.memory.value / GIB:.0f}",
            f"{memory.weights.bytes / GIB:.1f}",
            f"{(memory.fixed - memory.weights.bytes) / GIB:.1f}",
            f"{max(memory.available or 0.0, 0.0) / GIB:.1f}" if fits else "does not fit",
            f"{memory.pool.tokens:,}" if fits and memory.pool is not None else UNKNOWN,
            f"{memory.pool.sequences:.1f}" if fits and memory.pool is not None else UNKNOWN,
            UNKNOWN if isnan(hour) else f"{hour:,.2f}",
        )
        found.append(((not fits, inf if isnan(hour) else hour, model.name), cells))
    columns = ("GPU", "GiB", "weights", "other", "left for KV", "KV tokens", "full contexts", "price per hour")
    rows = [cells for _, cells in sorted(found)]
    return ReportSection(f"Memory of {deployment.model.name} on each GPU", columns, rows, _memory_note(deployment))


def engine_section(
    profiles: Sequence[Profile], deployment: Deployment | None, models: Mapping[str, GpuModel]
) -> ReportSection:
    """What engines expose of their memory, beside the estimate for the same GPU and ratio. Raises
    UnknownArchitecture.
    """
    rows: list[tuple[str, ...]] = []
    for profile in profiles:
        if (engine := profile.engine) is None:
            continue
        ratio = engine.utilization
        total = _gpu_bytes(profile, deployment, models)
        pool, held = None, nan
        if deployment is not None and total is not None and ratio is not None:
            memory = _serving(deployment, deployment.gpu, total, ratio)
            pool, held = memory.pool, total * ratio + memory.cuda_graphs.bytes
        name, peak = str(profile.workload), profile.of(Usage.MEMORY).peak
        rows.append((name, "gpu_memory_utilization", UNKNOWN if ratio is None else f"{ratio:.2f}", UNKNOWN, UNKNOWN))
        tokens = nan if pool is None else float(pool.blocks * pool.block_tokens)
        measured = nan if engine.kv_tokens is None else float(engine.kv_tokens)
        rows.append((name, "KV cache, tokens", *_compared(measured, tokens, 0)))
        size = nan if pool is None else pool.block_bytes / pool.block_tokens / GIB
        rows.append((name, "KV cache, GiB", *_compared(measured * size, tokens * size, 1)))
        rows.append((name, "GPU memory held, GiB", *_compared(peak / GIB, held / GIB, 1)))
    columns = ("workload", "memory", "engine", "estimate", "difference")
    note = "The estimate needs --model, the GPU's memory (measured, or of --gpu), and gpu_memory_utilization."
    return ReportSection("Memory as the engines show it", columns, rows, note)


def _compared(measured: float, estimate: float, digits: int) -> tuple[str, str, str]:
    """Both, and the estimate's error."""
    shown = (UNKNOWN if isnan(each) else f"{each:,.{digits}f}" for each in (measured, estimate))
    difference = estimate / measured - 1.0 if measured > 0.0 else nan
    return (*shown, UNKNOWN if isnan(difference) else f"{100.0 * difference:+.1f} %")  # type: ignore[return-value]


def _gpu_bytes(profile: Profile, deployment: Deployment | None, models: Mapping[str, GpuModel]) -> float | None:
    """The memory of the GPU that a workload runs on: as measured, or of the table."""
    total = profile.of(Usage.MEMORY_TOTAL).mean
    if not isnan(total):
        return total
    model = find_model(models, deployment.gpu) if deployment is not None and deployment.gpu else None
    return None if model is None or model.memory is None else model.memory.value


def _serving(deployment: Deployment, gpu: str, size: float, utilization: float = 0.9) -> ServingMemory:
    """The memory of a replica on a GPU of `size` bytes, with vLLM's default sizes of a step there."""
    small = size < SMALL_GPU or "A100" in gpu
    return serving(
        deployment.model,
        kv_precision=deployment.kv_precision,
        tensor_parallel=deployment.tensor_parallel,
        max_tokens_in_batch=SMALL_BATCH_TOKENS if small else BATCH_TOKENS,
        max_sequences=SMALL_SEQUENCES if small else SEQUENCES,
        max_model_len=deployment.max_model_len,
        gpu_bytes=size,
        utilization=utilization,
    )


def _caches(deployment: Deployment) -> list[LayerCache]:
    return list(
        layer_caches(deployment.model, kv_precision=deployment.kv_precision, tensor_parallel=deployment.tensor_parallel)
    )


def _memory_note(deployment: Deployment) -> str:
    caches = _caches(deployment)
    per_token = context_bytes(caches, 1.0) - context_bytes(caches, 0.0)
    of = f"On each of {deployment.tensor_parallel} GPUs" if deployment.tensor_parallel > 1 else "On one GPU"
    left_out = (*deployment.model.unread, *filter(None, (deployment.model.uncounted,)))
    note = f"{of}, a token takes {per_token:,.0f} bytes of KV cache. Other memory is that of vLLM 0.19."
    return f"{note} Not counted: {', '.join(left_out)}." if left_out else note


def training_section(model: Architecture, gpus: int, models: Mapping[str, GpuModel]) -> ReportSection:
    """The memory of training a model on each of `gpus` data-parallel GPUs. Raises UnknownArchitecture."""
    ways = [(f"all weights, ZeRO stage {stage.value}", full_of(model, gpus=gpus, stage=stage)) for stage in ZeroStage]
    ways.append((f"LoRA of rank {LORA_RANK}, ZeRO stage 0", lora(model, LORA_RANK, gpus=gpus)))
    rows = [
        (
            name,
            *(f"{each / GIB:.1f}" for each in (memory.weights, memory.gradients, memory.optimizer, memory.total)),
            _smallest(memory.total, models),
        )
        for name, memory in ways
    ]
    columns = ("trained", "weights", "gradients", "optimizer", "GiB in all", "smallest GPU of the table")
    note = f"With Adam in mixed precision, without activations. Of the smallest GPU {percent(MEMORY_MARGIN)} stay free."
    return ReportSection(f"Training {model.name} on {gpus} GPUs", columns, rows, note)


def _smallest(needed: float, models: Mapping[str, GpuModel]) -> str:
    fitting = [(model.memory.value, name) for name, model in models.items() if model.memory is not None]
    return min(
        ((size, name) for size, name in fitting if size * (1.0 - MEMORY_MARGIN) >= needed), default=(nan, "none")
    )[1]


def model_shape(model: Architecture, kv_precision: str | None = None) -> ModelShape:
    """What a step of this model reads and computes, for `work`."""
    use = count_by_use(model)
    caches = list(layer_caches(model, kv_precision=kv_precision))
    per_token = context_bytes(caches, 1.0) - context_bytes(caches, 0.0)
    return ModelShape(
        dense=use.dense,
        routed=use.routed,
        experts=use.experts,
        experts_per_token=use.experts_per_token,
        weight_bytes=weight_bytes(model) / max(use.dense + use.routed, 1),
        kv_bytes=per_token,
        kv_is_split=not any(isinstance(layer.mixer, LatentAttention) for layer in model.layers),
    )


def weight_precision(model: Architecture) -> str:
    """The precision of the weights as `speed` names it; the config's own name if it has none for it."""
    if model.quantization is not None:
        return _METHODS.get(model.quantization.method, model.quantization.method)
    precision = resolve_precision(model, None)
    return _PRECISIONS.get(precision, precision)


def needed_bytes(deployment: Deployment, profile: Profile) -> float:
    """Bytes that the workload needs on each GPU: the model, and the KV cache of its 95th percentile of requests.

    What an engine holds says nothing: vLLM takes 90 % of any GPU. NaN if its requests or tokens were not measured.
    """
    point = profile.point
    if point is None:
        return nan
    running = profile.of(Usage.RUNNING).quantiles[P95]
    memory = serving(deployment.model, kv_precision=deployment.kv_precision, tensor_parallel=deployment.tensor_parallel)
    return memory.fixed + max(running, 1.0) * context_bytes(_caches(deployment), point.prompt + point.output)


def running_workload(profile: Profile, deployment: Deployment) -> RunningWorkload | str:
    """The workload as candidates are ranked for it, or what is missing for that."""
    if profile.point is None:
        return "no operating point: requests, prompt and generated tokens must be counted"
    memory = needed_bytes(deployment, profile)
    if isnan(memory):
        return "the requests per engine were not measured"
    shape, split = model_shape(deployment.model, deployment.kv_precision), GpuSplit(deployment.tensor_parallel)
    return RunningWorkload(
        device=deployment.gpu,
        gpus=deployment.tensor_parallel,
        memory=memory,
        precision=weight_precision(deployment.model),
        batch=profile.point.batch,
        now=_measured(profile.point, shape, split),
        history=tuple(_measured(point, shape, split) for point in profile.points),
        tokens=profile.of(Usage.GENERATED).busy_mean,
        requests=profile.of(Usage.REQUESTS).busy_mean,
        objective=deployment.objective,
    )


def _measured(point: OperatingPoint, shape: ModelShape, split: GpuSplit) -> MeasuredTime:
    load = StepLoad(point.batch, point.prompt, point.output)
    return MeasuredTime(decode_work(shape, load, split), point.step_s)


def gpu_section(
    profile: Profile, deployment: Deployment, models: Mapping[str, GpuModel], prices: PriceList
) -> ReportSection:
    """The ranking of GPU models for one workload. Raises UnknownArchitecture."""
    title = f"GPUs for {profile.workload}"
    columns = ("GPU", "fits", "ms per token", "SLO", "replicas", "per hour", "per 1M tokens", "evidence")
    workload = running_workload(profile, deployment)
    if isinstance(workload, str):
        return ReportSection(title, columns, (), f"Not known: {workload}.")
    rows = [_gpu_row(option) for option in rank_gpus(workload, models, prices)]
    note = (
        f"At the mean load while it worked: {workload.tokens:,.0f} tokens per second, batch {workload.batch:.1f}, "
        f"{workload.memory / 1e9:.1f} GB on each GPU. In brackets the band that nine of ten truths were in. "
        f"The time to the first token is not known; {PREFILL_MOVE}."
    )
    return ReportSection(title, columns, rows, note)


def _gpu_row(option: GpuOption) -> tuple[str, ...]:
    serves, text = option.serving, "; ".join((*option.reasons, *option.evidence))
    fits = {True: "yes", False: "no", None: UNKNOWN}[option.fits]
    title = f"{option.gpu} (now)" if option.is_present else option.gpu
    if serves is None:
        return (title, fits, *(UNKNOWN,) * 5, text)
    return (
        title,
        fits,
        _banded(serves.seconds, 1e3, 1),
        UNKNOWN if serves.objective is None else serves.objective.value,
        _banded(serves.replicas, 1.0, 0),
        _banded(serves.cost_per_hour, 1.0, 2),
        _banded(serves.cost_per_million_tokens, 1.0, 2),
        text,
    )


def _banded(estimate: Prediction | None, factor: float, digits: int) -> str:
    """A number with its band: "14.1 (10.6 to 19.6)"; without one if it is measured."""
    if estimate is None:
        return UNKNOWN
    value, low, high = (f"{each * factor:,.{digits}f}" for each in estimate)
    return value if low == value == high else f"{value} ({low} to {high})"


def slice_section(
    profiles: Sequence[Profile],
    mig: MigModel,
    least_speed: float = 0.0,
    memory: Sequence[float] = (),
    given: Mapping[str, SpeedEvidence] = MappingProxyType({}),
) -> ReportSection:
    """What workloads that run on this model of GPU, or on slices of it, would do on its slices, sharing one GPU.

    least_speed: relative to the whole GPU, that the SLO of each needs. memory: bytes that each needs; by default the
    most that it held, or the smallest slice that it was saturated on. given: speeds that the user measured, by
    workload. Raises ValueError if one is outside its bounds, or on no profile of the model.
    """
    measured = [speeds_of(profile.slices, mig) for profile in profiles]
    needs = memory or [_held_bytes(profile, found, mig) for profile, found in zip(profiles, measured, strict=True)]
    evidence = [
        _evidence(profile, mig, found, given.get(str(profile.workload), SpeedEvidence()))
        for profile, found in zip(profiles, measured, strict=True)
    ]
    speeds = [[predict(mig, each, found) for each in mig.profiles] for found in evidence]
    rows = [
        (str(profile.workload), each.name, _fit(need, each.size), _speed(speed), speed.basis if speed else "not known")
        for profile, need, found in zip(profiles, needs, speeds, strict=True)
        for each, speed in zip(mig.profiles, found, strict=True)
    ]
    columns = ("workload", "slice", "fits", "speed", "from")
    allowed = [allowed_speeds(mig, found, need, least_speed) for found, need in zip(speeds, needs, strict=True)]
    unused = [
        f"{each.workload} on {note}" for each, found in zip(profiles, measured, strict=True) for note in found.notes
    ]
    note = _slice_note(profiles, mig, speeds, allowed)
    note = f"{note} Throughput not used: {'; '.join(unused)}." if unused else note
    return ReportSection(f"MIG slices of an {mig.name}", columns, rows, note)


def _evidence(profile: Profile, mig: MigModel, measured: SliceSpeeds, given: SpeedEvidence) -> SpeedEvidence:
    """What is known of the workload's speed on slices; what the user measured wins.

    Activity counts on a whole GPU of this model alone: none if the workload runs on a part of one, or on another GPU.
    """
    total = profile.of(Usage.MEMORY_TOTAL).mean
    activity = None
    if total >= WHOLE_GPU * mig.whole.size:
        engine, sm, dram = (_or_none(profile.of(usage).busy_mean) for usage in (Usage.ENGINE, Usage.SM, Usage.DRAM))
        activity = GpuActivity(engine, sm, dram)
    return SpeedEvidence({**measured.slices, **given.slices}, given.mps, activity, measured.relative)


def _held_bytes(profile: Profile, measured: SliceSpeeds, mig: MigModel) -> float:
    """The most memory that the workload held; at most that of a slice that it did its work on, whose engine takes what
    it finds.
    """
    worked = {*measured.slices, *measured.relative}
    return min((profile.of(Usage.MEMORY).peak, *(each.size for each in mig.profiles if each.name in worked)))


def _slice_note(
    profiles: Sequence[Profile],
    mig: MigModel,
    speeds: Sequence[Sequence[SliceSpeed | None]],
    allowed: Sequence[Floats],
) -> str:
    best = plan([mig], {mig.name: np.array(allowed)}, [1] * len(profiles))
    (gpu,) = best.gpus
    placed = [(profile, row) for profile, row in zip(gpu.profiles, gpu.workloads, strict=True) if row is not None]
    chosen = [speeds[row][mig.profiles.index(profile)] for profile, row in placed]
    verdict = compare([each for each in chosen if each is not None], fit=all(best.placed))
    if not placed:
        return f"No slice: {verdict.reason}."
    where = ", ".join(f"{profiles[row].workload} on {profile.name}" for profile, row in placed)
    return f"Best partition of one GPU: {where}. Verdict: {verdict.choice}; {verdict.reason}."


def _fit(need: float, size: int) -> str:
    return UNKNOWN if isnan(need) else "yes" if need <= size else "no"


def _speed(speed: SliceSpeed | None) -> str:
    return UNKNOWN if speed is None else _banded(Prediction(speed.value, speed.low, speed.high), 1.0, 2)


def _or_none(value: float) -> float | None:
    return None if isnan(value) else value
