"""Counts the bytes that one GPU reads and the operations that it does in a decode step and in a prefill. Pure.

These are the two columns besides the constant that `speed` fits. They need not be exact: a factor that is the same at
every point of a history goes into the fitted coefficient. What matters is how they change with batch and context.

A decode step reads the weights once, the experts that any token of the step selects, and the KV cache of every request:

    bytes = weight_bytes * (dense / tensor + hit * routed / gpus) + kv_bytes * context * batch / data [/ tensor]
    hit   = 1 - (1 - experts_per_token / experts) ** batch          (tokens choose experts independently)
    flops = 2 * active * batch * (1 + prompt / output) / gpus       (a multiplication and an addition per parameter)

where `gpus = tensor * data`. In a step of an engine that mixes both, the prompts of the requests that will follow are
read too: `prompt / output` prompt tokens per generated token in the steady state.

Worked example: a dense model of 70e9 parameters in FP8 on 2 GPUs, 8 requests of 1,500 prompt and 1,000 output tokens,
so 2,000 tokens of context on average, 163,840 bytes of KV cache per token: 35e9 + 163840 * 2000 * 8 / 2 = 36.3e9 bytes
per GPU and step, and 2 * 70e9 * 8 * (1 + 1.5) / 2 = 1.4e12 operations.
"""

from __future__ import annotations

from typing import NamedTuple


class ModelShape(NamedTuple):
    """What a model asks of a GPU.

    dense:             parameters that every step reads: attention, shared experts, the output layer.
    routed:            parameters of all routed experts together; 0 if it has none.
    experts:           routed experts of a layer.
    experts_per_token: … that one token selects.
    weight_bytes:      bytes per parameter: 2 BF16, 1 FP8, 0.5625 four bits with a scale per 16 to 32 values.
    kv_bytes:          bytes of KV cache per token of context, over all layers.
    kv_is_split:       whether tensor parallel ranks divide the KV cache; False of latent attention (MLA).
    """

    dense: float
    routed: float
    experts: int
    experts_per_token: int
    weight_bytes: float
    kv_bytes: float
    kv_is_split: bool = True


class StepLoad(NamedTuple):
    """batch: requests in a step of one replica. prompt, output: mean tokens of a request."""

    batch: float
    prompt: float
    output: float


class GpuSplit(NamedTuple):
    """How a replica divides a model: GPUs per tensor parallel group, and groups with requests of their own."""

    tensor: int = 1
    data: int = 1

    @property
    def gpus(self) -> int:
        return self.tensor * self.data


class GpuWork(NamedTuple):
    """Bytes read and operations done by one GPU."""

    bytes: float
    flops: float


def decode_work(model: ModelShape, load: StepLoad, split: GpuSplit) -> GpuWork:
    """The work of one decode step of a replica, on one of its GPUs. A request is on average half generated."""
    context = load.prompt + load.output / 2
    kv_ranks = split.gpus if model.kv_is_split else split.data
    weights = model.weight_bytes * (model.dense / split.tensor + _hit(model, load.batch) * model.routed / split.gpus)
    return GpuWork(
        weights + model.kv_bytes * context * load.batch / kv_ranks,
        2.0 * _active(model) * load.batch * (1.0 + load.prompt / load.output) / split.gpus,
    )


def prefill_work(model: ModelShape, load: StepLoad, split: GpuSplit) -> GpuWork:
    """The work until the first token of a replica that reads the prompts of its whole batch, on one of its GPUs."""
    flops = 2.0 * _active(model) * load.batch * load.prompt / split.gpus
    return GpuWork(decode_work(model, load, split).bytes, flops)


def _active(model: ModelShape) -> float:
    """Parameters that one token uses."""
    return model.dense + (model.routed * model.experts_per_token / model.experts if model.routed else 0.0)


def _hit(model: ModelShape, tokens: float) -> float:
    """The expected part of the experts that at least one of the tokens selects."""
    return 1.0 - (1.0 - model.experts_per_token / model.experts) ** tokens if model.routed else 0.0
