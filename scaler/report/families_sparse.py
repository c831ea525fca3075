"""Builds the layers of decoders with a mixture of experts, with multi-head latent attention, or with both.

Sources are those of `families`. Which layers hold experts is written in each family's config under another key; a key
that is missing is refused, never guessed.

Worked example: DeepSeek V3 has three dense layers (`first_k_dense_replace`), then 58 with 256 experts of which each
token uses 8, and stores 512 + 64 elements per token and layer.
"""

from __future__ import annotations

from dataclasses import replace

from .families import (
    DecoderFamily,
    build_decoder_of_experts,
    count_layers,
    hidden_size,
    read_attention,
    read_experts,
    read_head_dim,
)
from .hf_config import ConfigKeys, UnknownArchitecture
from .layers import Attention, DecoderLayer, Dense, Experts, FeedForward, Indexer, LatentAttention

_QWEN3 = DecoderFamily(qkv_bias="attention_bias", output_bias="attention_bias", query_norm="head")


def build_mixtral(keys: ConfigKeys) -> tuple[DecoderLayer, ...]:
    return build_decoder_of_experts(keys, DecoderFamily(window="all"), _wide_experts)


def build_phimoe(keys: ConfigKeys) -> tuple[DecoderLayer, ...]:
    family = DecoderFamily(qkv_bias="attention_bias", output_bias="attention_bias", norm_bias=True, window="all")
    return build_decoder_of_experts(keys, family, _wide_experts)


def build_granitemoe(keys: ConfigKeys) -> tuple[DecoderLayer, ...]:
    return build_decoder_of_experts(keys, DecoderFamily(), _wide_experts)


def build_olmoe(keys: ConfigKeys) -> tuple[DecoderLayer, ...]:
    return build_decoder_of_experts(keys, DecoderFamily(query_norm="full"), _wide_experts)


def _wide_experts(keys: ConfigKeys, _layer: int) -> Experts:
    return read_experts(keys, width="intermediate_size")


def build_qwen2_moe(keys: ConfigKeys) -> tuple[DecoderLayer, ...]:
    return build_decoder_of_experts(keys, DecoderFamily(qkv_bias=True), _qwen_experts)


def build_qwen3_moe(keys: ConfigKeys) -> tuple[DecoderLayer, ...]:
    return build_decoder_of_experts(keys, _QWEN3, _qwen_experts)


def _qwen_experts(keys: ConfigKeys, layer: int) -> FeedForward:
    step = keys.integer("decoder_sparse_step", 1)
    dense = keys.values.get("mlp_only_layers") or []
    if (layer + 1) % step or (isinstance(dense, list) and layer in dense):
        return Dense(keys.integer("intermediate_size"))
    return read_experts(keys, shared_gate=True)


def build_glm4_moe(keys: ConfigKeys) -> tuple[DecoderLayer, ...]:
    family = DecoderFamily(qkv_bias="attention_bias", query_norm="use_qk_norm")
    return build_decoder_of_experts(keys, family, _late_experts)


def _late_experts(keys: ConfigKeys, layer: int) -> FeedForward:
    """Dense layers first, then experts with a correction of the router's scores."""
    if layer < keys.integer("first_k_dense_replace", least=0):
        return Dense(keys.integer("intermediate_size"))
    experts = read_experts(keys)
    return replace(experts, router_bias=experts.count)


def build_gpt_oss(keys: ConfigKeys) -> tuple[DecoderLayer, ...]:
    """GPT-OSS: biases everywhere, a sink per head, a window in every layer with an even index."""
    family = DecoderFamily(qkv_bias=True, output_bias=True)
    norms = 2 * hidden_size(keys)
    window = keys.integer("sliding_window")
    plain = read_attention(keys, family, None)
    experts = replace(_corrected_experts(keys, 0), bias=True)
    full = replace(plain, extra=plain.heads)
    local = replace(full, window=window)
    return tuple(DecoderLayer(full if layer % 2 else local, experts, norms) for layer in range(count_layers(keys)))


def build_minimax_m2(keys: ConfigKeys) -> tuple[DecoderLayer, ...]:
    return build_decoder_of_experts(keys, DecoderFamily(query_norm="full"), _corrected_experts)


def _corrected_experts(keys: ConfigKeys, layer: int) -> Experts:
    experts = _wide_experts(keys, layer)
    return replace(experts, router_bias=experts.count)


def build_minimax_m3(keys: ConfigKeys) -> tuple[DecoderLayer, ...]:
    """MiniMax M3: an index key of 16 bits per element beside keys and values in the layers with sparse attention."""
    count = count_layers(keys)
    sparse = keys.within("sparse_attention_config")
    indexed = sparse.sequence("sparse_attention_freq", count)
    routed = keys.sequence("moe_layer_freq", count)
    plain = read_attention(keys, DecoderFamily(query_norm="head"), None)
    dim = sparse.integer("sparse_index_dim")
    hidden = hidden_size(keys)
    index_heads = sparse.integer("sparse_num_index_heads")
    indexer = Indexer(cache_bytes=2 * dim, weights=hidden * dim * (index_heads + 1) + 2 * dim)
    dense = Dense(keys.integer("dense_intermediate_size"))
    each = keys.integer("intermediate_size")
    experts = Experts(
        keys.integer("num_local_experts"),
        keys.integer("num_experts_per_tok"),
        each,
        shared_width=keys.integer("n_shared_experts", 0, least=0) * keys.integer("shared_intermediate_size", each),
        router_bias=keys.integer("num_local_experts"),
    )

    mixers = [replace(plain, indexer=indexer) if sparsely else plain for sparsely in indexed]
    blocks = [experts if expert else dense for expert in routed]
    return tuple(DecoderLayer(mixer, block, 2 * hidden) for mixer, block in zip(mixers, blocks, strict=True))


def build_llama4(keys: ConfigKeys) -> tuple[DecoderLayer, ...]:
    """Llama 4: every fourth layer reads all tokens, the others those of their chunk; experts at an interval."""
    count = count_layers(keys)
    heads = keys.integer("num_attention_heads")
    kv_heads, dim = keys.integer("num_key_value_heads"), read_head_dim(keys, heads)
    chunk = keys.optional("attention_chunk_size")
    step = keys.integer("interleave_moe_layer_step")
    wide = keys.integer("intermediate_size_mlp")
    each = keys.integer("intermediate_size")
    experts = Experts(keys.integer("num_local_experts"), keys.integer("num_experts_per_tok"), each, shared_width=each)
    rope = keys.values.get("no_rope_layers") or [int((layer + 1) % 4 != 0) for layer in range(count)]
    if not isinstance(rope, list) or len(rope) != count:
        raise UnknownArchitecture(keys.section + "no_rope_layers", f"must be a list with {count} entries", rope)

    def layer_of(layer: int) -> DecoderLayer:
        window = chunk if rope[layer] else None
        routed = (layer + 1) % step == 0
        return DecoderLayer(
            Attention(heads, kv_heads, dim, dim, window=window, chunked=window is not None),
            experts if routed else Dense(wide),
            2 * hidden_size(keys),
        )

    return tuple(layer_of(layer) for layer in range(count))


def build_mimo_v2(keys: ConfigKeys) -> tuple[DecoderLayer, ...]:
    """MiMo V2: layers with a window have head counts of their own, and values are narrower than keys."""
    count = count_layers(keys)
    pattern = keys.sequence("hybrid_layer_pattern", count)
    routed = keys.sequence("moe_layer_freq", count)
    window = keys.integer("sliding_window_size")
    full = Attention(
        keys.integer("num_attention_heads"),
        keys.integer("num_key_value_heads"),
        keys.integer("head_dim"),
        keys.integer("v_head_dim"),
        qkv_bias=keys.flag("attention_bias", default=False),
    )
    local = Attention(
        keys.integer("swa_num_attention_heads"),
        keys.integer("swa_num_key_value_heads"),
        keys.integer("swa_head_dim"),
        keys.integer("swa_v_head_dim"),
        window=window,
        qkv_bias=full.qkv_bias,
        extra=keys.integer("swa_num_attention_heads") if keys.flag("add_swa_attention_sink_bias", default=False) else 0,
    )
    experts = read_experts(keys)
    experts = replace(experts, router_bias=experts.count)
    dense = Dense(keys.integer("intermediate_size"))
    return tuple(
        DecoderLayer(local if pattern[layer] else full, experts if routed[layer] else dense, 2 * hidden_size(keys))
        for layer in range(count)
    )


def build_gemma4(keys: ConfigKeys) -> tuple[DecoderLayer, ...]:
    """Gemma 4: full layers have a head size and KV heads of their own; a value that equals its key is stored as well.

    The last `num_kv_shared_layers` read the cache of an earlier layer. Experts run beside a dense block.
    """
    count = count_layers(keys)
    kinds = keys.sequence("layer_types", count)
    heads, hidden = keys.integer("num_attention_heads"), hidden_size(keys)
    first_shared = count - keys.integer("num_kv_shared_layers", 0, least=0)
    dim, global_dim = keys.integer("head_dim"), keys.integer("global_head_dim")
    kv_heads = keys.integer("num_key_value_heads")
    equal = keys.flag("attention_k_eq_v", default=False)
    global_kv_heads = keys.integer("num_global_key_value_heads") if equal else kv_heads
    width = keys.integer("intermediate_size")
    window = keys.integer("sliding_window")
    norms = 4 * hidden

    def mixer(layer: int) -> Attention:
        is_local = kinds[layer] == "sliding_attention"
        elements = dim if is_local else global_dim
        return Attention(
            heads,
            kv_heads if is_local else global_kv_heads,
            elements,
            elements,
            window=window if is_local else None,
            shares_cache=layer >= first_shared,
            norms=2 * elements,
        )

    def feed_forward(layer: int) -> FeedForward:
        if keys.flag("enable_moe_block", default=False):
            experts = keys.integer("num_experts")
            return Experts(
                experts,
                keys.integer("top_k_experts"),
                keys.integer("moe_intermediate_size"),
                beside=width,
                extra=hidden + experts,
            )
        doubled = keys.flag("use_double_wide_mlp", default=False) and layer >= first_shared
        return Dense(width * (2 if doubled else 1))

    extra = 3 * hidden if keys.flag("enable_moe_block", default=False) else 0
    return tuple(DecoderLayer(mixer(layer), feed_forward(layer), norms + extra) for layer in range(count))


def build_deepseek(keys: ConfigKeys) -> tuple[DecoderLayer, ...]:
    """DeepSeek V2 and V3, Kimi K2, GLM 5: latent attention; V3.2 and GLM 5 add an indexer to it."""
    hidden = hidden_size(keys)
    step = keys.integer("moe_layer_freq", 1)
    first = keys.integer("first_k_dense_replace", 0, least=0)
    dense = Dense(keys.integer("intermediate_size"))
    experts = read_experts(keys) if {"n_routed_experts", "num_experts_per_tok"} & keys.values.keys() else None
    if experts is not None and keys.values.get("topk_method") == "noaux_tc":
        experts = replace(experts, router_bias=experts.count)
    query_rank = keys.optional("q_lora_rank")
    kinds = keys.sequence("indexer_types", count_layers(keys)) if "indexer_types" in keys else None

    def feed_forward(layer: int) -> FeedForward:
        return experts if experts is not None and layer >= first and layer % step == 0 else dense

    def mixer(layer: int) -> LatentAttention:
        return LatentAttention(
            keys.integer("num_attention_heads"),
            query_rank,
            keys.integer("kv_lora_rank"),
            keys.integer("qk_rope_head_dim"),
            keys.integer("qk_nope_head_dim"),
            keys.integer("v_head_dim"),
            sparse="index_topk" in keys,
            indexer=_index(keys, query_rank, None if kinds is None else kinds[layer]),
        )

    return tuple(DecoderLayer(mixer(layer), feed_forward(layer), 2 * hidden) for layer in range(count_layers(keys)))


def _index(keys: ConfigKeys, query_rank: int | None, kind: object) -> Indexer | None:
    """Returns the indexer of DeepSeek sparse attention: an FP8 key and one 32-bit scale for each 128 elements."""
    if "index_topk" not in keys or kind == "shared":
        return None
    if query_rank is None:
        raise UnknownArchitecture(keys.section + "q_lora_rank", "must be there beside index_topk", None)
    heads, dim, hidden = keys.integer("index_n_heads"), keys.integer("index_head_dim"), hidden_size(keys)
    weights = query_rank * heads * dim + hidden * (dim + heads) + 2 * dim
    return Indexer(cache_bytes=dim + 4 * (dim // 128), weights=weights)
