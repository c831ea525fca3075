"""Builds the layers of each family of decoders that is known, by its `model_type` in config.json.

`DECODERS` lists the families that differ from Llama in a few points only: one row each, of which the points are
columns. `families_sparse` and `families_hybrid` hold the others. Defaults are those of the family's configuration class
in `transformers` 5 (Apache-2.0, `models/*/configuration_*.py`); which layers keep a window, and what is shared, follows
vLLM 0.32 (Apache-2.0, `model_executor/models/`), whose cache is computed here.

Worked example: `gemma2` has four norms per layer, ties its embeddings, and keeps a window in every other layer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .hf_config import ConfigKeys, UnknownArchitecture
from .layers import Attention, DecoderLayer, Dense, Experts, FeedForward


class DecoderFamily(NamedTuple):
    """What tells a family of decoders from Llama.

    qkv_bias, output_bias, mlp_bias: whether projections have a bias, or the key that says so.
    norms, norm_bias:  norm vectors of the hidden size per layer, and whether each has a bias beside its weight.
    query_norm:        "head": norms on queries and keys, one element per element of a head; "full": of all heads;
                       a key: "head" if that key is true.
    width:             the key of the feed-forward width, or a multiple of the hidden size.
    window:            which layers keep a window: "types" (layer_types), "all", "even", an interval of full layers,
                       or "none".
    tied:              whether the embedding is also the output layer, unless the config says otherwise.
    positions:         the key of the number of learned positions; empty: none.
    spare:             norms of the hidden size outside the layers.
    head_bias:         whether the output layer adds a bias.
    usual_window:      tokens of the window if the config has no key for it; null is none.
    window_extra:      tokens that vLLM adds to the window of the config.
    """

    qkv_bias: bool | str = False
    output_bias: bool | str = False
    mlp_bias: bool | str = False
    gated: bool = True
    norms: int = 2
    norm_bias: bool = False
    query_norm: str = ""
    width: str | int = "intermediate_size"
    window: str | int = "none"
    tied: bool = False
    positions: str = ""
    spare: int = 1
    head_bias: bool = False
    usual_window: int | None = None
    window_extra: int = 0


_LLAMA = DecoderFamily(qkv_bias="attention_bias", output_bias="attention_bias", mlp_bias="mlp_bias")
_BIASED = DecoderFamily(qkv_bias=True, output_bias=True, mlp_bias=True, gated=False, norm_bias=True)

DECODERS = {
    "llama": _LLAMA,
    "mistral": DecoderFamily(window="all", usual_window=4096),
    "ministral": DecoderFamily(window="types", usual_window=4096),
    "qwen2": DecoderFamily(qkv_bias=True, window="qwen"),
    "qwen2_vl_text": DecoderFamily(qkv_bias=True, window="qwen"),
    "qwen2_5_vl_text": DecoderFamily(qkv_bias=True, window="qwen"),
    "mimo": DecoderFamily(qkv_bias=True),
    "qwen3": _LLAMA._replace(query_norm="head", mlp_bias=False, window="qwen"),
    "qwen3_vl_text": _LLAMA._replace(query_norm="head", mlp_bias=False),
    "gemma": DecoderFamily(qkv_bias="attention_bias", output_bias="attention_bias", tied=True),
    "gemma2": DecoderFamily(norms=4, tied=True, window=2),
    "gemma3_text": DecoderFamily(norms=4, query_norm="head", tied=True, window=6),
    "phi3": DecoderFamily(window="all"),
    "phi": _BIASED._replace(norms=1, head_bias=True),
    "gpt2": _BIASED._replace(width=4, tied=True, positions="n_positions"),
    "gpt_bigcode": _BIASED._replace(width=4, tied=True, positions="n_positions"),
    "gpt_neox": _BIASED._replace(qkv_bias="attention_bias", output_bias="attention_bias"),
    "bloom": _BIASED._replace(width=4, tied=True, spare=2),
    "starcoder2": _BIASED._replace(qkv_bias="use_bias", output_bias="use_bias", mlp_bias="use_bias", tied=True),
    "stablelm": DecoderFamily(qkv_bias="use_qkv_bias", norm_bias=True),
    "cohere": DecoderFamily(norms=1, tied=True),
    "cohere2": DecoderFamily(norms=1, tied=True, window=4, window_extra=1),
    "olmo": DecoderFamily(norms=0, spare=0),
    "olmo2": DecoderFamily(query_norm="full"),
    "olmo3": DecoderFamily(query_norm="full", window=4),
    "granite": _LLAMA._replace(tied=True),
    "glm": DecoderFamily(qkv_bias="attention_bias"),
    "glm4": DecoderFamily(qkv_bias="attention_bias", norms=4),
    "ernie4_5": DecoderFamily(qkv_bias="use_bias", output_bias="use_bias", mlp_bias="use_bias", tied=True),
    "exaone4": DecoderFamily(query_norm="head", window=4),
    "smollm3": _LLAMA._replace(tied=True),
    "nemotron": DecoderFamily(gated=False, norm_bias=True),
    "seed_oss": DecoderFamily(qkv_bias="attention_bias", output_bias="attention_out_bias", mlp_bias="mlp_bias"),
    "hunyuan_v1_dense": DecoderFamily(query_norm="head", tied=True),
    "arcee": _LLAMA._replace(gated=False),
}


def build_decoder(keys: ConfigKeys, family: DecoderFamily) -> tuple[DecoderLayer, ...]:
    """Returns the layers of a dense decoder of a family."""
    count = count_layers(keys)
    hidden = hidden_size(keys)
    width = family.width * hidden if isinstance(family.width, int) else keys.integer(family.width)
    feed_forward = Dense(width, family.gated, says(keys, family.mlp_bias))
    norms = family.norms * hidden * (1 + family.norm_bias)
    windows = read_windows(keys, family, count)
    return tuple(DecoderLayer(read_attention(keys, family, window), feed_forward, norms) for window in windows)


def build_decoder_of_experts(
    keys: ConfigKeys, family: DecoderFamily, experts: Callable[[ConfigKeys, int], FeedForward]
) -> tuple[DecoderLayer, ...]:
    """Returns the layers of a decoder in which `experts(keys, layer)` says what each feed-forward block is."""
    count = count_layers(keys)
    norms = family.norms * hidden_size(keys) * (1 + family.norm_bias)
    windows = read_windows(keys, family, count)
    return tuple(
        DecoderLayer(read_attention(keys, family, window), experts(keys, layer), norms)
        for layer, window in enumerate(windows)
    )


def read_attention(keys: ConfigKeys, family: DecoderFamily, window: int | None) -> Attention:
    """Returns one attention layer. Heads and their sizes are explicit, or those of multi-head attention."""
    heads = keys.either("num_attention_heads", "n_head")
    kv_heads = _count_kv_heads(keys, heads)
    head_dim = read_head_dim(keys, heads)
    norm = family.query_norm
    if norm.startswith("use_"):
        norm = "head" if keys.flag(norm, default=False) else ""
    return Attention(
        heads,
        kv_heads,
        head_dim,
        head_dim,
        window=window,
        qkv_bias=says(keys, family.qkv_bias),
        output_bias=says(keys, family.output_bias),
        norms={"": 0, "head": 2 * head_dim, "full": (heads + kv_heads) * head_dim}[norm],
    )


def _count_kv_heads(keys: ConfigKeys, heads: int) -> int:
    if "num_key_value_heads" in keys:
        return keys.integer("num_key_value_heads")
    if keys.flag("multi_query", default=False):
        return 1
    return heads


def read_head_dim(keys: ConfigKeys, heads: int) -> int:
    """Returns the elements of a head: `head_dim`, or else the hidden size divided among the heads."""
    if "head_dim" in keys:
        return keys.integer("head_dim")
    hidden = hidden_size(keys)
    if hidden % heads:
        raise UnknownArchitecture(keys.section + "head_dim", f"must be there: {hidden} by {heads} is no integer", None)
    return hidden // heads


MOST_LAYERS = 4096  # the largest public models have about 130


def count_layers(keys: ConfigKeys) -> int:
    """Returns the number of layers. Refuses more than MOST_LAYERS, which would take all memory."""
    count = keys.either("num_hidden_layers", "n_layer")
    if count > MOST_LAYERS:
        raise UnknownArchitecture(keys.section + "num_hidden_layers", f"must be at most {MOST_LAYERS}", count)
    return count


def hidden_size(keys: ConfigKeys) -> int:
    return keys.either("hidden_size", "n_embd")


def says(keys: ConfigKeys, flag: bool | str) -> bool:
    """Returns a flag itself, or the value of the key that it names; false if the config leaves that out."""
    return keys.flag(flag, default=False) if isinstance(flag, str) else flag


def read_windows(keys: ConfigKeys, family: DecoderFamily, count: int) -> tuple[int | None, ...]:
    """Returns the window of each layer in tokens, None for a layer that reads all tokens.

    An interval n makes each n-th layer a full one, unless `layer_types` names each layer's kind.
    """
    rule = family.window
    window = keys.optional("sliding_window") if "sliding_window" in keys.values else family.usual_window
    if rule == "qwen" and not keys.flag("use_sliding_window", default=False):
        window = None
    if window is None or rule == "none":
        return (None,) * count
    window += family.window_extra
    if "layer_types" in keys and rule != "all":
        return tuple(
            window if read_kind(kind, keys) == "sliding_attention" else None
            for kind in keys.sequence("layer_types", count)
        )
    if rule == "qwen":
        first = keys.integer("max_window_layers", least=0)
        return tuple(window if layer >= first else None for layer in range(count))
    if isinstance(rule, int):
        interval = keys.integer("sliding_window_pattern", rule)
        return tuple(None if (layer + 1) % interval == 0 else window for layer in range(count))
    return (window,) * count


def read_kind(kind: object, keys: ConfigKeys) -> str:
    """Returns one entry of `layer_types` of a decoder that has attention only."""
    if kind not in ("full_attention", "sliding_attention"):
        raise UnknownArchitecture(keys.section + "layer_types", "must be full_attention or sliding_attention", kind)
    return str(kind)


def read_experts(keys: ConfigKeys, *, width: str = "moe_intermediate_size", shared_gate: bool = False) -> Experts:
    """Returns a mixture of experts by the usual keys; the names of some differ between families."""
    each = keys.integer(width)
    shared = keys.values.get("shared_expert_intermediate_size")
    shared_width = (
        keys.integer("shared_expert_intermediate_size", least=0)
        if shared is not None
        else each * keys.integer("n_shared_experts", 0, least=0)
    )
    return Experts(
        count=keys.either("num_experts", "num_local_experts", "n_routed_experts"),
        active=keys.either("num_experts_per_tok", "num_experts_per_token"),
        width=each,
        shared_width=shared_width,
        shared_gate=shared_gate and shared_width > 0,
    )
