"""Computes the bytes of keys, values and states that an engine keeps for each sequence, in blocks as vLLM does.

A layer of attention keeps its keys and values per token: of all tokens, or of the last ones if it has a window. A
layer of latent attention keeps one compressed vector for all heads, so that tensor parallelism does not divide it. A
recurrent layer keeps one state per sequence. vLLM takes memory in blocks of one size for all layers, so layers of
different kinds are put in groups, and a sequence takes whole blocks of each group.

Sources: `KVCacheSpec.page_size_bytes` in vLLM 0.32 `v1/kv_cache_interface.py`; groups and blocks in
`v1/core/kv_cache_utils.py` and `platforms/interface.py` (Apache-2.0). `benchmarks/RIGHTSIZING.md` compares both.

Worked example: a token of Llama 3.1 8B takes 32 layers x 8 heads x (128 + 128) elements x 2 bytes = 131,072 bytes in
bfloat16, half of it in FP8, and 65,536 bytes on each of two GPUs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from math import ceil
from typing import NamedTuple

from .architecture import Architecture
from .layers import Attention, LatentAttention, Recurrent
from .weights import element_bytes, resolve_precision

BLOCK_TOKENS = 16  # of vLLM on CUDA (`CacheConfig.DEFAULT_BLOCK_SIZE`)
LATENT_BLOCK_TOKENS = 128  # blocks of latent attention beside states are a multiple (`_align_hybrid_block_size`)
# FP8 keys of sparse latent attention hold 512 bytes, 4 scales of 32 bits and 64 rotary elements of 16 bits
# (`MLAAttention.get_kv_cache_spec`, "fp8_ds_mla").
SPARSE_FP8_BYTES = 656
# States that a sequence keeps with prefix caching (`MambaSpec.max_memory_usage_bytes`, `MambaMixer2`): the current one,
# the last one at the border of a block, and for Mamba-2 one more at the end of a prompt.
STATES, STATES_MAMBA2 = 2, 3
# If one kind of layer is less than 1.5 times as frequent as another, both get groups of the larger count.
_CLOSE = 1.5


class CacheKind(StrEnum):
    """What a layer keeps: all tokens, those of a window, those of a chunk, or a state."""

    FULL = "full"
    WINDOW = "window"
    CHUNK = "chunk"
    STATE = "state"


class LayerCache(NamedTuple):
    """What one layer keeps on one GPU.

    size:    bytes per token, or of the whole state.
    window:  tokens of the window or the chunk; 0 otherwise.
    copies:  states that a sequence keeps.
    """

    kind: CacheKind
    size: int
    window: int = 0
    copies: int = 1


class TokenBytes(NamedTuple):
    """Bytes on one GPU: per token of the context, per token in a window, and per sequence whatever its length."""

    full: int
    windowed: int
    state: int


class CachePool(NamedTuple):
    """A memory divided into blocks.

    blocks:              in the pool.
    block_tokens:        tokens in a block of a layer with full attention.
    block_bytes:         bytes of one block, of all layers of a group.
    sequence_blocks:     blocks of one sequence of the given length.
    sequences:           sequences of that length that fit, a fraction.
    tokens:              tokens of such sequences that fit, as vLLM logs it.
    """

    blocks: int
    block_tokens: int
    block_bytes: int
    sequence_blocks: int
    sequences: float
    tokens: int


def layer_caches(
    arch: Architecture,
    *,
    precision: str | None = None,
    kv_precision: str | None = None,
    tensor_parallel: int = 1,
    prefix_caching: bool = True,
) -> Iterator[LayerCache]:
    """Yields what each layer keeps on one of `tensor_parallel` GPUs; nothing for a layer that keeps nothing.

    precision: of the model, None for the config's; kv_precision: of the cache, None for that of the model.
    prefix_caching: whether states of earlier tokens are kept beside the current one.
    Raises UnknownArchitecture if a precision is not known.
    """
    model_bytes = element_bytes(resolve_precision(arch, precision))
    size = model_bytes if kv_precision in (None, "auto") else element_bytes(str(kv_precision))
    for layer in arch.layers:
        match layer.mixer:
            case Attention() as attention if not attention.shares_cache:
                yield _attention_cache(attention, size, tensor_parallel)
                if attention.indexer:
                    yield LayerCache(CacheKind.FULL, attention.indexer.cache_bytes)
            case LatentAttention() as latent:
                yield LayerCache(CacheKind.FULL, _latent_bytes(latent, size))
                if latent.indexer:
                    yield LayerCache(CacheKind.FULL, latent.indexer.cache_bytes)
            case Recurrent() as recurrent:
                copies = (STATES_MAMBA2 if recurrent.groups else STATES) if prefix_caching else 1
                yield LayerCache(CacheKind.STATE, _state_bytes(recurrent, model_bytes, tensor_parallel), copies=copies)


def _attention_cache(attention: Attention, size: float, tensor_parallel: int) -> LayerCache:
    heads = max(1, attention.kv_heads // tensor_parallel)
    kind = CacheKind.FULL
    if attention.window is not None:
        kind = CacheKind.CHUNK if attention.chunked else CacheKind.WINDOW
    return LayerCache(kind, int(heads * (attention.key_dim + attention.value_dim) * size), attention.window or 0)


def _latent_bytes(latent: LatentAttention, size: float) -> int:
    if latent.sparse and size == 1:
        return SPARSE_FP8_BYTES
    return int((latent.kv_rank + latent.rope_dim) * size)


def _state_bytes(recurrent: Recurrent, size: float, tensor_parallel: int) -> int:
    """Groups that tensor parallelism cannot divide are repeated, so that each GPU has those of its heads."""
    width = recurrent.conv_width
    if recurrent.groups and recurrent.groups % tensor_parallel:
        repeated = recurrent.groups + (tensor_parallel - recurrent.groups)
        width += recurrent.groups_width // recurrent.groups * (repeated - recurrent.groups)
    conv = width // tensor_parallel * recurrent.conv_steps * size
    state = recurrent.state // tensor_parallel * (recurrent.state_bytes or size)
    return int(conv + state)


def token_bytes(
    arch: Architecture, *, precision: str | None = None, kv_precision: str | None = None, tensor_parallel: int = 1
) -> TokenBytes:
    """Returns the bytes per token and per sequence on one GPU, without rounding to blocks."""
    totals = dict.fromkeys(CacheKind, 0)
    for cache in layer_caches(arch, precision=precision, kv_precision=kv_precision, tensor_parallel=tensor_parallel):
        totals[cache.kind] += cache.size
    windowed = totals[CacheKind.WINDOW] + totals[CacheKind.CHUNK]
    return TokenBytes(totals[CacheKind.FULL], windowed, totals[CacheKind.STATE])


def context_bytes(caches: list[LayerCache], tokens: float) -> float:
    """Returns the bytes that a decode step reads for one sequence with a context of `tokens`, state included."""
    total = 0.0
    for cache in caches:
        if cache.kind is CacheKind.STATE:
            total += cache.size
        else:
            total += cache.size * (min(tokens, cache.window) if cache.window else tokens)
    return total


def divide(
    caches: list[LayerCache],
    available_bytes: float,
    max_model_len: int,
    *,
    batch_tokens: int,
    latent: bool = False,
) -> CachePool | None:
    """Returns how many blocks, sequences and tokens fit in a memory of one GPU; None for a model that keeps nothing.

    batch_tokens:  tokens of one step: a window keeps them besides its own until they are computed.
    latent:        whether attention is latent.
    """
    if not caches:
        return None
    tokens = _block_tokens(caches, latent=latent)
    pages = {cache: cache.size * (1 if cache.kind is CacheKind.STATE else tokens) for cache in caches}
    kinds = {(cache.kind, cache.window) for cache in caches}
    if len(kinds) == 1:
        block_bytes = sum(pages[cache] for cache in caches)
        groups = Counter({(caches[0], tokens): 1})
    else:
        page = max(pages.values())
        layers = Counter((cache, _scaled(cache, tokens, page, pages[cache])) for cache in caches)
        group_size = _group_size(layers)
        block_bytes = group_size * page
        groups = Counter({kind: ceil(count / group_size) for kind, count in layers.items()})
    blocks = int(available_bytes // block_bytes)
    needed = sum(
        count * _sequence_blocks(cache, size, max_model_len, batch_tokens) for (cache, size), count in groups.items()
    )
    return CachePool(blocks, tokens, block_bytes, needed, blocks / needed, int(blocks / needed * max_model_len))


def _block_tokens(caches: list[LayerCache], *, latent: bool) -> int:
    """Returns the tokens of a block: 16, or as many as make attention's page as large as the largest state."""
    states = [cache.size for cache in caches if cache.kind is CacheKind.STATE]
    paged = [cache.size for cache in caches if cache.kind is not CacheKind.STATE]
    if not states or not paged:
        return BLOCK_TOKENS
    step = LATENT_BLOCK_TOKENS if latent else BLOCK_TOKENS
    return step * ceil(max(states) / (step * max(paged)))


def _scaled(cache: LayerCache, tokens: int, page: int, own_page: int) -> int:
    """Returns the tokens of a block of a layer with a smaller page: more, where that fills the page; else padding."""
    if cache.kind is CacheKind.STATE or page % own_page:
        return tokens
    return tokens * (page // own_page)


def _group_size(layers: Counter[tuple[LayerCache, int]]) -> int:
    least, most = min(layers.values()), max(layers.values())
    return most if most < least * _CLOSE else least


def _sequence_blocks(cache: LayerCache, tokens: int, length: int, batch_tokens: int) -> int:
    match cache.kind:
        case CacheKind.STATE:
            return cache.copies
        case CacheKind.WINDOW:  # one more: a window need not begin at the border of a block
            return ceil(min(cache.window - 1 + batch_tokens, length) / tokens) + 1
        case CacheKind.CHUNK:
            return ceil(min(cache.window + batch_tokens, length) / tokens)
        case CacheKind.FULL:
            return ceil(length / tokens)
