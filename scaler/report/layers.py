"""Describes what one layer of a language model stores and computes, without tensors and without an engine.

A layer has a mixer, which reads other tokens (attention or a recurrent state), and a feed-forward block. All sizes are
counts of elements: bytes come later, with a precision. `kv_cache` and `weights` read these records; `families` builds
them from a config.json.

Worked example: in Llama 3.1 8B each of the 32 layers is `DecoderLayer(Attention(heads=32, kv_heads=8, key_dim=128,
value_dim=128), Dense(width=14336))`; a token's keys and values are 8 x (128 + 128) elements in each.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Indexer:
    """A second, smaller key per token, by which sparse attention chooses the tokens that it reads.

    cache_bytes:  bytes per token that the engine stores, at any precision of the KV cache.
    weights:      elements of its projections and norms; 0 if the layer reuses those of an earlier one.
    """

    cache_bytes: int
    weights: int = 0


@dataclass(frozen=True, slots=True)
class Attention:
    """Multi-head, grouped-query or multi-query attention: keys and values per token and KV head.

    kv_heads:      KV heads; equal to `heads` in multi-head attention, 1 in multi-query attention.
    key_dim:       elements of one key, and of one query.
    value_dim:     elements of one value.
    window:        tokens that the layer can read back to, so that older ones are dropped; None: all.
    chunked:       the window is a chunk that ends at its own border, and does not slide.
    shares_cache:  the layer reads keys and values of an earlier layer and stores none.
    qkv_bias, output_bias: whether the projections add a bias.
    norms:         elements of the norms on queries and keys.
    output_gate:   the query projection also emits a gate per output element, and is twice as wide.
    extra:         elements of further parameters, such as attention sinks.
    """

    heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    window: int | None = None
    chunked: bool = False
    shares_cache: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    norms: int = 0
    output_gate: bool = False
    extra: int = 0
    indexer: Indexer | None = None


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (MLA): one compressed key and value per token, shared by all heads.

    query_rank:  elements of the compressed query; None if queries are projected at once.
    kv_rank:     elements of the compressed key and value (`kv_lora_rank`).
    rope_dim:    elements of the rotary key, which is stored beside the compressed one (`qk_rope_head_dim`).
    nope_dim:    elements of a head's key without rotary position (`qk_nope_head_dim`).
    value_dim:   elements of a head's value.
    sparse:      whether it reads chosen tokens only: by its own indexer, or by that of an earlier layer.
    """

    heads: int
    query_rank: int | None
    kv_rank: int
    rope_dim: int
    nope_dim: int
    value_dim: int
    output_gate: bool = False
    sparse: bool = False
    indexer: Indexer | None = None


@dataclass(frozen=True, slots=True)
class Recurrent:
    """A state per sequence instead of keys per token: Mamba, Gated DeltaNet, Kimi Delta Attention, short convolution.

    conv_width, conv_steps: elements and past steps of the convolution's state.
    groups_width:           elements of conv_width that belong to groups, which tensor parallelism may repeat.
    groups:                 groups of the state; 0 if the convolution has none.
    state:                  elements of the recurrent state; 0 if there is only a convolution.
    state_bytes:            bytes of one of its elements if the architecture fixes them; None: the model's precision.
    projections:            (name, inputs, outputs) of each linear layer.
    extra:                  elements of all other parameters.
    """

    conv_width: int
    conv_steps: int
    state: int
    projections: tuple[tuple[str, int, int], ...]
    extra: int
    groups: int = 0
    groups_width: int = 0
    state_bytes: int | None = None


class NoMixer(StrEnum):
    """The layer reads no other token."""

    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class Dense:
    """A feed-forward block that each token passes through.

    width:  elements between the projections.
    gated:  three projections (gate, up, down) instead of two.
    """

    width: int
    gated: bool = True
    bias: bool = False


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts: each token passes through `active` of `count` experts, and through the shared ones.

    width:          elements between the projections of one routed expert.
    shared_width:   the same, summed over the shared experts; 0: none.
    shared_gate:    whether a gate of one output scales the shared experts.
    router_bias:    elements that the router adds to its scores.
    bias:           whether the projections of routed experts add a bias.
    beside:         width of a dense block that runs in parallel; 0: none.
    extra:          elements of further parameters.
    """

    count: int
    active: int
    width: int
    shared_width: int = 0
    shared_gate: bool = False
    router_bias: int = 0
    gated: bool = True
    bias: bool = False
    beside: int = 0
    latent: int = 0
    extra: int = 0


Mixer = Attention | LatentAttention | Recurrent | NoMixer
FeedForward = Dense | Experts | None


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    """One layer. norms: elements of its norms and other vectors outside the mixer and the feed-forward block."""

    mixer: Mixer
    feed_forward: FeedForward
    norms: int
