"""Counts the weights of an architecture, and the bytes that they take on each GPU.

`matrices` lists every matrix and vector with its shape, the module that it belongs to, and among how many GPUs tensor
parallelism can divide it, as vLLM's layers do: projections of heads by heads, feed-forward blocks by width,
embeddings by vocabulary, all else not at all. Parameters of an encoder for images or sound are not counted.

Worked example: Llama 3.1 8B has 8,030,261,248 parameters: 16.06 GB in bfloat16 on one GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .architecture import Architecture
from .hf_config import UnknownArchitecture
from .layers import Attention, Dense, Experts, FeedForward, Indexer, LatentAttention, Mixer, Recurrent

# Bytes of one element, by the names that config.json and engines use.
ELEMENT_BYTES = {
    "float32": 4.0, "float": 4.0, "fp32": 4.0, "bfloat16": 2.0, "bf16": 2.0, "float16": 2.0, "half": 2.0, "fp16": 2.0,
    "fp8": 1.0, "fp8_e4m3": 1.0, "fp8_e5m2": 1.0, "float8_e4m3fn": 1.0, "int8": 1.0,
}  # fmt: skip
_ANY = 1 << 30  # divisible among as many GPUs as there are


class Matrix(NamedTuple):
    """One matrix, or `alike` of the same shape.

    module:  its path, as "layers.3.mlp.down_proj".
    shards:  the number of GPUs that it can be divided among; with more of them, parts are repeated.
    linear:  whether it is a linear layer, which quantisation applies to.
    active:  how many of `alike` a token passes through.
    lookup:  the embedding, of which a token reads one row.
    """

    module: str
    rows: int
    columns: int = 1
    alike: int = 1
    shards: int = 1
    linear: bool = False
    active: int = 1
    lookup: bool = False

    @property
    def elements(self) -> int:
        return self.rows * self.columns * self.alike


def element_bytes(precision: str) -> float:
    """Returns the bytes of one element. Raises UnknownArchitecture if the name is not one of ELEMENT_BYTES."""
    size = ELEMENT_BYTES.get(precision)
    if size is None:
        raise UnknownArchitecture("torch_dtype", f"must be one of {', '.join(ELEMENT_BYTES)}", precision)
    return size


def matrices(arch: Architecture) -> Iterator[Matrix]:
    """Yields all parameters of the language model."""
    yield Matrix("embed_tokens", arch.vocabulary, arch.hidden, shards=_ANY, lookup=not arch.tied)
    if arch.positions:
        yield Matrix("embed_positions", arch.positions, arch.hidden, lookup=True)
    if not arch.tied:
        yield Matrix("lm_head", arch.vocabulary, arch.hidden, shards=_ANY, linear=True)
    if arch.head_bias:
        yield Matrix("lm_head", arch.vocabulary, shards=_ANY)
    yield Matrix("norm", arch.outside)
    for index, layer in enumerate(arch.layers):
        path = f"layers.{index}"
        yield Matrix(f"{path}.norm", layer.norms)
        yield from _mixer(path, layer.mixer, arch.hidden)
        yield from _feed_forward(f"{path}.mlp", layer.feed_forward, arch.hidden)


def _mixer(path: str, mixer: Mixer, hidden: int) -> Iterator[Matrix]:
    match mixer:
        case Attention():
            yield from _attention(f"{path}.self_attn", mixer, hidden)
        case LatentAttention():
            yield from _latent(f"{path}.self_attn", mixer, hidden)
        case Recurrent():
            for name, columns, rows in mixer.projections:
                module = f"{path}.{name.replace('linear_attn', 'self_attn')}"
                yield Matrix(module, rows, columns, shards=_ANY, linear=True)
            yield Matrix(f"{path}.state", mixer.extra, shards=_ANY)


def _attention(path: str, attention: Attention, hidden: int) -> Iterator[Matrix]:
    heads, kv_heads = attention.heads, attention.kv_heads
    queries = heads * attention.key_dim * (1 + attention.output_gate)
    shapes = [("q_proj", queries, heads)]
    if not attention.shares_cache:
        shapes.append(("k_proj", kv_heads * attention.key_dim, kv_heads))
        shapes.append(("v_proj", kv_heads * attention.value_dim, kv_heads))
    for name, rows, shards in shapes:
        yield Matrix(f"{path}.{name}", rows, hidden, shards=shards, linear=True)
        if attention.qkv_bias:
            yield Matrix(f"{path}.{name}", rows, shards=shards)
    yield Matrix(f"{path}.o_proj", hidden, heads * attention.value_dim, shards=heads, linear=True)
    if attention.output_bias:
        yield Matrix(f"{path}.o_proj", hidden)
    yield Matrix(f"{path}.norm", attention.norms // (2 if attention.shares_cache else 1))
    yield Matrix(f"{path}.sinks", attention.extra, shards=heads)
    yield from _indexer(path, attention.indexer)


def _latent(path: str, latent: LatentAttention, hidden: int) -> Iterator[Matrix]:
    heads, rank = latent.heads, latent.query_rank
    queries = heads * (latent.nope_dim + latent.rope_dim)
    if rank is None:
        yield Matrix(f"{path}.q_proj", queries, hidden, shards=heads, linear=True)
    else:
        yield Matrix(f"{path}.q_a_proj", rank, hidden, linear=True)
        yield Matrix(f"{path}.q_b_proj", queries, rank, shards=heads, linear=True)
        yield Matrix(f"{path}.norm", rank)
    yield Matrix(f"{path}.kv_a_proj_with_mqa", latent.kv_rank + latent.rope_dim, hidden, linear=True)
    values = heads * latent.value_dim
    yield Matrix(f"{path}.kv_b_proj", heads * latent.nope_dim + values, latent.kv_rank, shards=heads, linear=True)
    yield Matrix(f"{path}.norm", latent.kv_rank)
    yield Matrix(f"{path}.o_proj", hidden, values, shards=heads, linear=True)
    if latent.output_gate:
        yield Matrix(f"{path}.g_proj", values, hidden, shards=heads, linear=True)
    yield from _indexer(path, latent.indexer)


def _indexer(path: str, indexer: Indexer | None) -> Iterator[Matrix]:
    if indexer is not None:
        yield Matrix(f"{path}.indexer", indexer.weights, linear=True)


def _feed_forward(path: str, block: FeedForward, hidden: int) -> Iterator[Matrix]:
    match block:
        case Dense(width=width, gated=gated, bias=bias):
            yield from _network(path, hidden, width, gated=gated, bias=bias)
        case Experts():
            yield Matrix(f"{path}.gate", block.count, hidden)
            yield Matrix(f"{path}.gate", block.router_bias + block.extra)
            inner = block.latent or hidden
            # Beside a dense block, experts are no part of it.
            experts = f"{path.removesuffix('.mlp')}.experts.0" if block.beside else f"{path}.experts.0"
            for matrix in _network(experts, inner, block.width, gated=block.gated, bias=block.bias):
                yield matrix._replace(alike=block.count, active=block.active)
            if block.latent:
                yield Matrix(f"{path}.fc1_latent_proj", inner, hidden, linear=True)
                yield Matrix(f"{path}.fc2_latent_proj", hidden, inner, linear=True)
            if block.shared_width:
                yield from _network(f"{path}.shared_experts", hidden, block.shared_width, gated=block.gated)
            if block.shared_gate:
                yield Matrix(f"{path}.shared_expert_gate", hidden)
            if block.beside:
                yield from _network(path, hidden, block.beside, gated=True)


def _network(path: str, hidden: int, width: int, *, gated: bool, bias: bool = False) -> Iterator[Matrix]:
    shapes = [("up_proj", width, hidden), ("down_proj", hidden, width)]
    if gated:
        shapes.insert(0, ("gate_proj", width, hidden))
    for name, rows, columns in shapes:
        yield Matrix(f"{path}.{name}", rows, columns, shards=_ANY, linear=True)
        if bias:
            yield Matrix(f"{path}.{name}", rows, shards=1 if name == "down_proj" else _ANY)


def count_parameters(arch: Architecture) -> int:
    """Returns the parameters of the language model."""
    return sum(matrix.elements for matrix in matrices(arch))


class ParameterUse(NamedTuple):
    """Parameters by how a decode step uses them.

    dense:   that every step multiplies with, shared experts and the output layer included, the embedding left out.
    routed:  of all routed experts together; 0 if there are none.
    experts, experts_per_token: routed experts of a layer, and those that one token selects; 0 if there are none.
    """

    dense: int
    routed: int
    experts: int
    experts_per_token: int


def count_by_use(arch: Architecture) -> ParameterUse:
    """Returns the parameters that every step reads, and those that only chosen experts do."""
    routed = [matrix for matrix in matrices(arch) if matrix.alike > 1]
    dense = sum(matrix.elements for matrix in matrices(arch) if matrix.alike == 1 and not matrix.lookup)
    return ParameterUse(
        dense,
        sum(matrix.elements for matrix in routed),
        max((matrix.alike for matrix in routed), default=0),
        max((matrix.active for matrix in routed), default=0),
    )


def matrix_bytes(matrix: Matrix, arch: Architecture, precision: str) -> float:
    """Returns the bytes of a matrix (of all `alike`), by the config's quantisation or in a precision."""
    storage = arch.quantization.storage_of(matrix.module) if arch.quantization and matrix.linear else None
    if storage is None:
        return matrix.elements * element_bytes(precision)
    hidden, width = storage.hidden_step, storage.width_step
    if matrix.module.endswith("down_proj"):
        rows, columns = _round_up(matrix.rows, hidden), _round_up(matrix.columns, width)
    else:
        rows, columns = _round_up(matrix.rows, width), _round_up(matrix.columns, hidden)
    return rows * columns * matrix.alike * storage.bits_per_weight / 8


def _round_up(size: int, step: int) -> int:
    return -(-size // step) * step


def weight_bytes(arch: Architecture, *, precision: str | None = None, tensor_parallel: int = 1) -> float:
    """Returns the bytes of all weights on each of `tensor_parallel` GPUs.

    precision: of parameters that are not quantised; None: the one in the config. Raises UnknownArchitecture if neither
    names one.
    """
    stored = resolve_precision(arch, precision)
    return sum(matrix_bytes(matrix, arch, stored) / min(tensor_parallel, matrix.shards) for matrix in matrices(arch))


def resolve_precision(arch: Architecture, precision: str | None) -> str:
    """Returns a precision, or else the config's; refuses if there is none."""
    found = precision or arch.precision
    if found is None:
        raise UnknownArchitecture("torch_dtype", f"must be one of {', '.join(ELEMENT_BYTES)}", None)
    return found
