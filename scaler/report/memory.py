"""Estimates the GPU memory of serving a language model with vLLM, part by part, and what fits beside it.

Each part states how it is known: weights and KV cache are computed from the architecture; activations, CUDA graphs and
the framework's overhead follow formulas with constants that were fitted to measured starts of vLLM on H100. In all
27 starts of vLLM 0.19 the sum is within 5 % (`benchmarks/RIGHTSIZING.md`). Other engines and versions differ: vLLM 0.11
takes 3 to 5 GiB more for activations.

Worked example: Llama 3.1 8B in bfloat16 with 8,192 tokens and 1,024 sequences in a step: weights 14.96 GiB,
activations 1.89, overhead 0.25, CUDA graphs 0.91; a GPU of 79.19 GiB, of which the engine takes 95 %, has 58.1 GiB for
the KV cache, which is 476,176 tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from .architecture import Architecture
from .hf_config import UnknownArchitecture
from .kv_cache import CachePool, TokenBytes, divide, layer_caches, token_bytes
from .layers import Attention, Dense, Experts, LatentAttention
from .weights import element_bytes, resolve_precision, weight_bytes

GIB = 2**30
# vLLM's defaults on a GPU with 70 to 160 GiB that is no A100 (`EngineArgs`); 2,048 and 256 on smaller ones.
BATCH_TOKENS, SEQUENCES = 8192, 1024
_SAMPLING_BYTES = 0.12 * GIB
# Vectors of the hidden size that a layer holds at once besides its feed-forward block.
_HIDDEN_COPIES = 4.3
_GRAPHS_BYTES, _GRAPHS_LAYER_BYTES = 0.35 * GIB, 0.0175 * GIB


class EngineFit(NamedTuple):
    """What was fitted to measured starts of one version of an engine, in bytes.

    logit:        of one sequence and one entry of the vocabulary while a token is sampled.
    overhead:     outside PyTorch's allocator on one GPU.
    collectives:  the same on each GPU with tensor parallelism, buffers of NCCL and of the engine's all-reduce included.
    """

    name: str
    logit: float
    overhead: float
    collectives: float


# Logits in 16 bits and three copies of them in 32 bits.
VLLM_019 = EngineFit("vLLM 0.19 on H100", 14.0, 0.25 * GIB, 2.1 * GIB)
# Some nine copies in 32 bits, as in the versions before it.
VLLM_011 = EngineFit("vLLM 0.11 on H100", 37.5, 0.13 * GIB, 0.55 * GIB)


class Basis(StrEnum):
    """How a part is known."""

    COMPUTED = "computed from config.json"
    FITTED = "formula fitted to measured starts of the engine"
    ABSENT = "not part of this deployment"


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """Bytes on each GPU, and how they are known."""

    bytes: float
    basis: Basis


@dataclass(frozen=True, slots=True)
class ServingMemory:
    """Memory of one GPU that serves a model, all in bytes.

    kv:         bytes of the KV cache per token and sequence, without rounding to blocks.
    pool:       what fits in the memory that is left; None if no GPU was given, or nothing is stored per sequence.
    available:  bytes for the KV cache; negative if the model does not fit; None if no GPU was given.
    unread:     what is in the config and not in these numbers, such as an encoder for images.
    """

    weights: MemoryPart
    activations: MemoryPart
    cuda_graphs: MemoryPart
    overhead: MemoryPart
    kv: TokenBytes
    available: float | None
    pool: CachePool | None
    unread: tuple[str, ...]

    @property
    def fixed(self) -> float:
        """Bytes that the engine takes before it divides the rest among the KV cache's blocks, CUDA graphs aside."""
        return self.weights.bytes + self.activations.bytes + self.overhead.bytes


def serving(
    arch: Architecture,
    *,
    precision: str | None = None,
    kv_precision: str | None = None,
    tensor_parallel: int = 1,
    max_tokens_in_batch: int = BATCH_TOKENS,
    max_sequences: int = SEQUENCES,
    max_model_len: int | None = None,
    gpu_bytes: float | None = None,
    utilization: float = 0.9,
    cuda_graphs: bool = True,
    engine: EngineFit = VLLM_019,
) -> ServingMemory:
    """Returns the memory of one of `tensor_parallel` GPUs, and what fits in `gpu_bytes` of it.

    precision:            of parameters that are not quantised; None: the config's.
    kv_precision:         of the KV cache; None: the model's.
    max_tokens_in_batch:  tokens of one step.
    max_sequences:        sequences of one step.
    max_model_len:        tokens of a sequence; None: the model's context, or 8,192 if the config does not say.
    utilization:          ratio of the GPU that the engine takes. vLLM 0.19 leaves CUDA graphs outside of it.
    Raises UnknownArchitecture if a precision is not known, or if the heads cannot be divided among the GPUs.
    """
    stored = resolve_precision(arch, precision)
    if not can_divide(arch, tensor_parallel):
        raise UnknownArchitecture("num_attention_heads", f"must be divisible by {tensor_parallel} GPUs", _heads(arch))
    weights = weight_bytes(arch, precision=stored, tensor_parallel=tensor_parallel)
    activations = activation_bytes(arch, stored, tensor_parallel, max_tokens_in_batch, max_sequences, engine)
    overhead = engine.overhead if tensor_parallel == 1 else engine.collectives
    graphs = _GRAPHS_BYTES + _GRAPHS_LAYER_BYTES * len(arch.layers) if cuda_graphs else 0.0
    caches = list(layer_caches(arch, precision=stored, kv_precision=kv_precision, tensor_parallel=tensor_parallel))
    available = pool = None
    if gpu_bytes is not None:
        available = gpu_bytes * utilization - weights - activations - overhead
        pool = divide(
            caches,
            max(available, 0.0),
            max_model_len or arch.context or BATCH_TOKENS,
            batch_tokens=max_tokens_in_batch,
            latent=any(isinstance(layer.mixer, LatentAttention) for layer in arch.layers),
        )
    return ServingMemory(
        weights=MemoryPart(weights, Basis.COMPUTED),
        activations=MemoryPart(activations, Basis.FITTED),
        cuda_graphs=MemoryPart(graphs, Basis.FITTED if cuda_graphs else Basis.ABSENT),
        overhead=MemoryPart(overhead, Basis.FITTED),
        kv=token_bytes(arch, precision=stored, kv_precision=kv_precision, tensor_parallel=tensor_parallel),
        available=available,
        pool=pool,
        unread=(*arch.unread, *((arch.uncounted,) if arch.uncounted else ())),
    )


def can_divide(arch: Architecture, gpus: int) -> bool:
    """Whether tensor parallelism can divide a model among GPUs: its heads, and its KV heads or copies of them."""
    for layer in arch.layers:
        match layer.mixer:
            case Attention(heads=heads, kv_heads=kv_heads):
                if heads % gpus or (kv_heads % gpus and gpus % kv_heads):
                    return False
            case LatentAttention(heads=heads):
                if heads % gpus:
                    return False
    return True


def _heads(arch: Architecture) -> list[int]:
    return sorted({layer.mixer.heads for layer in arch.layers if isinstance(layer.mixer, Attention | LatentAttention)})


def activation_bytes(
    arch: Architecture,
    precision: str,
    tensor_parallel: int,
    batch_tokens: int,
    sequences: int,
    engine: EngineFit = VLLM_019,
) -> float:
    """Returns the bytes of the largest step, which vLLM measures before it divides the rest.

    That is the step's forward pass through the widest block, or the sampling of one token for each sequence,
    whichever is more; and the workspace of experts, which stays allocated.
    """
    size = element_bytes(precision)
    hidden = batch_tokens * arch.hidden * size
    width = max((_width(layer.feed_forward, tensor_parallel) for layer in arch.layers), default=0.0)
    forward = batch_tokens * width * size + _HIDDEN_COPIES * hidden
    sampling = sequences * arch.vocabulary * engine.logit + hidden + _SAMPLING_BYTES
    workspace = max(
        (_workspace(layer.feed_forward, arch.hidden, tensor_parallel) for layer in arch.layers), default=0.0
    )
    quantised = arch.quantization is not None and arch.quantization.method == "mxfp4"
    return max(forward, sampling) + (0.0 if quantised else batch_tokens * workspace * size)


def _width(block: object, tensor_parallel: int) -> float:
    """Elements per token between the projections: both outputs of a gated block, and their product."""
    match block:
        case Dense(width=width, gated=gated):
            return (3 if gated else 2) * width / tensor_parallel
        case Experts() as experts:
            return 3 * (experts.shared_width + experts.beside) / tensor_parallel
    return 0.0


def _workspace(block: object, hidden: int, tensor_parallel: int) -> float:
    """Elements per token of the two buffers that the kernels of experts alternate between."""
    if not isinstance(block, Experts):
        return 0.0
    width = block.width / tensor_parallel
    return block.active * (max(2 * width, hidden) + max(width, hidden / 2))
