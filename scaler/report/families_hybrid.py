"""Builds the layers of decoders in which some layers keep a state per sequence, or no cache at all.

Sources are those of `families`. The order of the layers is written in the config (`layer_types`,
`hybrid_override_pattern`, `block_configs` ...) and is read, never guessed.

Worked example: Qwen3.5 has three layers of Gated DeltaNet, each with a convolution and a matrix per head, before each
layer of attention: three layers of four cost the same for a sequence of any length.
"""

from __future__ import annotations

from collections.abc import Mapping

from .families import DecoderFamily, count_layers, hidden_size, read_attention, read_experts, read_head_dim
from .hf_config import ConfigKeys, UnknownArchitecture
from .layers import Attention, DecoderLayer, Dense, Experts, FeedForward, LatentAttention, NoMixer, Recurrent

# Bytes of one element of a state, by the name that a config gives it.
STATE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


def build_qwen3_next(keys: ConfigKeys) -> tuple[DecoderLayer, ...]:
    """Qwen3-Next and Qwen3.5: Gated DeltaNet, and attention with an output gate in each fourth layer."""
    count, hidden = count_layers(keys), hidden_size(keys)
    if "layer_types" in keys:
        kinds = keys.sequence("layer_types", count)
    else:
        interval = keys.integer("full_attention_interval")
        kinds = ["linear_attention" if (layer + 1) % interval else "full_attention" for layer in range(count)]
    plain = read_attention(keys, DecoderFamily(query_norm="head"), None)
    full = Attention(plain.heads, plain.kv_heads, plain.key_dim, plain.value_dim, norms=plain.norms, output_gate=True)
    linear = _gated_delta_net(keys)
    feed_forward: FeedForward = (
        read_experts(keys, shared_gate=True) if "num_experts" in keys else Dense(keys.integer("intermediate_size"))
    )
    mixers: dict[str, Attention | Recurrent] = {"linear_attention": linear, "full_attention": full}
    return tuple(DecoderLayer(_choose(mixers, kind, keys, "layer_types"), feed_forward, 2 * hidden) for kind in kinds)


def _choose(
    mixers: Mapping[str, Attention | Recurrent], kind: object, keys: ConfigKeys, key: str
) -> Attention | Recurrent:
    """Returns the mixer of a kind of layer; a kind that is not among them is refused."""
    found = mixers.get(str(kind))
    if found is None:
        raise UnknownArchitecture(keys.section + key, f"must be one of {', '.join(mixers)}", kind)
    return found


def _gated_delta_net(keys: ConfigKeys) -> Recurrent:
    hidden = hidden_size(keys)
    key_heads, value_heads = keys.integer("linear_num_key_heads"), keys.integer("linear_num_value_heads")
    key_dim, value_dim = keys.integer("linear_key_head_dim"), keys.integer("linear_value_head_dim")
    kernel = keys.integer("linear_conv_kernel_dim")
    keys_width, values_width = key_heads * key_dim, value_heads * value_dim
    conv = 2 * keys_width + values_width
    return Recurrent(
        conv_width=conv,
        conv_steps=kernel - 1,
        state=value_heads * value_dim * key_dim,
        state_bytes=_state_bytes(keys, "mamba_ssm_dtype"),
        projections=(
            ("linear_attn.in_proj_qkv", hidden, conv),
            ("linear_attn.in_proj_z", hidden, values_width),
            ("linear_attn.in_proj_b", hidden, value_heads),
            ("linear_attn.in_proj_a", hidden, value_heads),
            ("linear_attn.out_proj", values_width, hidden),
        ),
        extra=conv * kernel + 2 * value_heads + value_dim,
    )


def _state_bytes(keys: ConfigKeys, key: str, default: str | None = None) -> int | None:
    if key not in keys and default is None:
        return None
    name = keys.text(key, default)
    if name not in STATE_BYTES:
        raise UnknownArchitecture(keys.section + key, f"must be one of {', '.join(STATE_BYTES)}", name)
    return STATE_BYTES[name]


def build_kimi_linear(keys: ConfigKeys) -> tuple[DecoderLayer, ...]:
    """Kimi Linear and Kimi K3: Kimi Delta Attention, and latent attention in the layers that the config lists."""
    count, hidden = count_layers(keys), hidden_size(keys)
    linear = keys.within("linear_attn_config")
    full = linear.entries("full_attn_layers")  # counted from 1
    latent = LatentAttention(
        keys.integer("num_attention_heads"),
        keys.optional("q_lora_rank"),
        keys.integer("kv_lora_rank"),
        keys.integer("qk_rope_head_dim"),
        keys.integer("qk_nope_head_dim"),
        keys.integer("v_head_dim"),
        output_gate=keys.flag("mla_use_output_gate", default=False),
    )
    heads, dim = linear.integer("num_heads"), linear.integer("head_dim")
    kernel, width = linear.integer("short_conv_kernel_size"), heads * dim
    delta = Recurrent(
        conv_width=3 * width,
        conv_steps=kernel - 1,
        state=heads * dim * dim,
        state_bytes=4,
        projections=(
            *((f"self_attn.{name}_proj", hidden, width) for name in "qkv"),
            ("self_attn.f_a_proj", hidden, dim),
            ("self_attn.f_b_proj", dim, width),
            ("self_attn.b_proj", hidden, heads),
            ("self_attn.g_a_proj", hidden, dim),
            ("self_attn.g_b_proj", dim, width),
            ("self_attn.o_proj", width, hidden),
        ),
        extra=3 * width * kernel + heads + width + dim,
    )
    dense = Dense(keys.integer("intermediate_size"))
    experts = read_experts(keys)
    shared = keys.integer("num_shared_experts", 0, least=0) * experts.width
    latent_width = keys.optional("routed_expert_hidden_size") or 0
    experts = Experts(
        experts.count, experts.active, experts.width, shared, router_bias=experts.count, latent=latent_width
    )
    first = keys.integer("first_k_dense_replace", least=0)
    return tuple(
        DecoderLayer(latent if layer + 1 in full else delta, experts if layer >= first else dense, 2 * hidden)
        for layer in range(count)
    )


def _mamba2(keys: ConfigKeys, names: Mapping[str, str], prefix: str, state_bytes: int | None = None) -> Recurrent:
    """Returns a Mamba-2 layer. names: the config's keys of heads, head_dim, groups, state and kernel."""
    hidden = hidden_size(keys)
    heads, groups = keys.integer(names["heads"]), keys.integer(names["groups"])
    inner = heads * keys.integer(names["head_dim"])
    state, kernel = keys.integer(names["state"]), keys.integer(names["kernel"])
    conv = inner + 2 * groups * state
    return Recurrent(
        conv_width=conv,
        conv_steps=kernel - 1,
        state=inner * state,
        groups=groups,
        groups_width=2 * groups * state,
        state_bytes=state_bytes,
        projections=(
            (f"{prefix}.in_proj", hidden, inner + conv + heads),
            (f"{prefix}.out_proj", inner, hidden),
        ),
        extra=conv * (kernel + 1) + 3 * heads + inner,
    )


_NEMOTRON = {
    "heads": "mamba_num_heads",
    "head_dim": "mamba_head_dim",
    "groups": "n_groups",
    "state": "ssm_state_size",
    "kernel": "conv_kernel",
}
_BAMBA = {
    "heads": "mamba_n_heads",
    "head_dim": "mamba_d_head",
    "groups": "mamba_n_groups",
    "state": "mamba_d_state",
    "kernel": "mamba_d_conv",
}


def build_nemotron_h(keys: ConfigKeys) -> tuple[DecoderLayer, ...]:
    """Nemotron-H and Nemotron 3: each layer is a mixer or a feed-forward block, never both.

    The pattern is a letter per layer (M Mamba-2, * attention, - dense, E experts) or a list of words.
    """
    hidden = hidden_size(keys)
    letters = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E"}
    if "layers_block_type" in keys:
        listed = keys.entries("layers_block_type")
        kinds = [letters.get(str(kind), str(kind)) for kind in listed]
    else:
        kinds = list(keys.text("hybrid_override_pattern"))
    heads = keys.integer("num_attention_heads")
    dim = keys.either("head_dim", "attention_head_dim")
    attention = Attention(heads, keys.integer("num_key_value_heads"), dim, dim)
    # vLLM keeps states in 32 bits unless the config says otherwise (`NemotronHForCausalLMConfig`).
    mamba = _mamba2(keys, _NEMOTRON, "mixer", _state_bytes(keys, "mamba_ssm_cache_dtype", "float32"))
    absent = NoMixer.ABSENT

    def layer(kind: str) -> DecoderLayer:
        match kind:
            case "M":
                return DecoderLayer(mamba, None, hidden)
            case "*":
                return DecoderLayer(attention, None, hidden)
            case "-":
                return DecoderLayer(absent, Dense(keys.integer("intermediate_size"), gated=False), hidden)
            case "E":
                return DecoderLayer(absent, _nemotron_experts(keys), hidden)
        raise UnknownArchitecture(keys.section + "hybrid_override_pattern", "must be of M, *, - and E", kind)

    return tuple(layer(kind) for kind in kinds)


def _nemotron_experts(keys: ConfigKeys) -> Experts:
    count = keys.integer("n_routed_experts")
    shared = keys.integer("n_shared_experts", least=0) * keys.integer("moe_shared_expert_intermediate_size")
    return Experts(
        count,
        keys.integer("num_experts_per_tok"),
        keys.integer("moe_intermediate_size"),
        shared_width=shared,
        router_bias=count,
        gated=False,
        latent=keys.optional("moe_latent_size") or 0,
    )


def build_bamba(keys: ConfigKeys) -> tuple[DecoderLayer, ...]:
    """Bamba: Mamba-2 layers, and attention in the layers that `attn_layer_indices` lists."""
    hidden = hidden_size(keys)
    full = keys.entries("attn_layer_indices") if "attn_layer_indices" in keys else ()
    attention = read_attention(keys, DecoderFamily(), None)
    mamba = _mamba2(keys, _BAMBA, "mamba")
    dense = Dense(keys.integer("intermediate_size"))
    return tuple(
        DecoderLayer(attention if layer in full else mamba, dense, 2 * hidden) for layer in range(count_layers(keys))
    )


def build_granite_hybrid(keys: ConfigKeys) -> tuple[DecoderLayer, ...]:
    """Granite 4: Mamba-2 or attention by `layer_types`; experts and a shared block that every token passes."""
    hidden = hidden_size(keys)
    mixers: dict[str, Attention | Recurrent] = {
        "mamba": _mamba2(keys, _BAMBA, "mamba"),
        "attention": read_attention(keys, DecoderFamily(), None),
    }
    shared = keys.integer("shared_intermediate_size")
    routed = keys.integer("num_local_experts", 0, least=0)
    feed_forward: FeedForward = (
        Experts(routed, keys.integer("num_experts_per_tok"), keys.integer("intermediate_size"), shared_width=shared)
        if routed
        else Dense(shared)
    )
    return tuple(
        DecoderLayer(_choose(mixers, kind, keys, "layer_types"), feed_forward, 2 * hidden)
        for kind in keys.sequence("layer_types", count_layers(keys))
    )


def build_jamba(keys: ConfigKeys) -> tuple[DecoderLayer, ...]:
    """Jamba: Mamba-1, attention at an interval, experts at another."""
    hidden = hidden_size(keys)
    attention = read_attention(keys, DecoderFamily(), None)
    inner = keys.integer("mamba_expand") * hidden
    state, kernel, rank = keys.integer("mamba_d_state"), keys.integer("mamba_d_conv"), keys.integer("mamba_dt_rank")
    mamba = _mamba1(hidden, inner, state, kernel, rank, "mamba", norms=rank + 2 * state)
    width = keys.integer("intermediate_size")
    experts = Experts(keys.integer("num_experts"), keys.integer("num_experts_per_tok"), width)
    every, offset = keys.integer("attn_layer_period"), keys.integer("attn_layer_offset", least=0)
    expert_every, expert_offset = keys.integer("expert_layer_period"), keys.integer("expert_layer_offset", least=0)

    def layer(index: int) -> DecoderLayer:
        mixer = attention if index % every == offset else mamba
        routed = index % expert_every == expert_offset and experts.count > 1
        return DecoderLayer(mixer, experts if routed else Dense(width), 2 * hidden)

    return tuple(layer(index) for index in range(count_layers(keys)))


def build_mamba(keys: ConfigKeys) -> tuple[DecoderLayer, ...]:
    """Mamba and Falcon Mamba: no attention and no feed-forward blocks."""
    hidden, inner = hidden_size(keys), keys.integer("intermediate_size")
    mamba = _mamba1(
        hidden,
        inner,
        keys.integer("state_size"),
        keys.integer("conv_kernel"),
        keys.integer("time_step_rank"),
        "mixer",
        norms=0,
    )
    return (DecoderLayer(mamba, None, hidden),) * count_layers(keys)


def _mamba1(hidden: int, inner: int, state: int, kernel: int, rank: int, prefix: str, *, norms: int) -> Recurrent:
    return Recurrent(
        conv_width=inner,
        conv_steps=kernel - 1,
        state=inner * state,
        projections=(
            (f"{prefix}.in_proj", hidden, 2 * inner),
            (f"{prefix}.x_proj", inner, rank + 2 * state),
            (f"{prefix}.dt_proj", rank, inner),
            (f"{prefix}.out_proj", inner, hidden),
        ),
        extra=inner * (kernel + 1) + inner + inner * state + inner + norms,
    )


def build_lfm2(keys: ConfigKeys) -> tuple[DecoderLayer, ...]:
    """LFM2: short convolutions, and attention in the layers that `layer_types` names."""
    hidden, taps = hidden_size(keys), keys.integer("conv_L_cache")
    conv = Recurrent(
        conv_width=hidden,
        conv_steps=taps - 1,
        state=0,
        projections=(("conv.in_proj", hidden, 3 * hidden), ("conv.out_proj", hidden, hidden)),
        extra=hidden * taps,
    )
    mixers: dict[str, Attention | Recurrent] = {
        "conv": conv,
        "full_attention": read_attention(keys, DecoderFamily(query_norm="head"), None),
    }
    width = keys.either("block_ff_dim", "intermediate_size")
    if keys.flag("block_auto_adjust_ff_dim", default=True):
        multiple = keys.integer("block_multiple_of")
        scaled = int(_number(keys, "block_ffn_dim_multiplier") * int(2 * width / 3))
        width = multiple * -(-scaled // multiple)
    return tuple(
        DecoderLayer(_choose(mixers, kind, keys, "layer_types"), Dense(width), 2 * hidden)
        for kind in keys.sequence("layer_types", count_layers(keys))
    )


def _number(keys: ConfigKeys, key: str) -> float:
    value = keys.values.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UnknownArchitecture(keys.section + key, "must be a number", value)
    return float(value)


def build_gemma3n(keys: ConfigKeys) -> tuple[DecoderLayer, ...]:
    """Gemma 3n: the last `num_kv_shared_layers` store nothing and read the cache of the last layers that do."""
    count = count_layers(keys)
    kinds = keys.sequence("layer_types", count)
    widths = keys.values.get("intermediate_size")
    heads, dim = keys.integer("num_attention_heads"), read_head_dim(keys, keys.integer("num_attention_heads"))
    kv_heads, window = keys.integer("num_key_value_heads"), keys.integer("sliding_window")
    first_shared = count - keys.integer("num_kv_shared_layers", least=0)

    def layer(index: int) -> DecoderLayer:
        mixer = Attention(
            heads,
            kv_heads,
            dim,
            dim,
            window=window if kinds[index] == "sliding_attention" else None,
            shares_cache=index >= first_shared,
            norms=2 * dim,
        )
        width = widths[index] if isinstance(widths, list) else keys.integer("intermediate_size")
        return DecoderLayer(mixer, Dense(int(width)), 4 * hidden_size(keys))

    return tuple(layer(index) for index in range(count))


def build_nemotron_nas(keys: ConfigKeys) -> tuple[DecoderLayer, ...]:
    """Nemotron Super and Ultra: a search chose the heads and the width of each layer, and removed some blocks."""
    hidden, heads = hidden_size(keys), keys.integer("num_attention_heads")
    dim = hidden // heads

    def layer(index: int, value: object) -> DecoderLayer:
        if not isinstance(value, Mapping):
            raise UnknownArchitecture(f"block_configs[{index}]", "must be a section", value)
        block = ConfigKeys(value, f"block_configs[{index}].")
        attention, network = block.within("attention"), block.within("ffn")
        mixer = (
            NoMixer.ABSENT
            if attention.flag("no_op", default=False)
            else Attention(heads, heads // attention.integer("n_heads_in_group"), dim, dim)
        )
        feed_forward = None if network.flag("no_op", default=False) else Dense(_nas_width(network, hidden))
        return DecoderLayer(mixer, feed_forward, hidden * ((mixer is not NoMixer.ABSENT) + (feed_forward is not None)))

    blocks = keys.sequence("block_configs", count_layers(keys))
    return tuple(layer(index, value) for index, value in enumerate(blocks))


def _nas_width(network: ConfigKeys, hidden: int) -> int:
    """Returns the width, which is a multiple of 256 near 2/3 of `ffn_mult` times the hidden size."""
    if "intermediate_size" in network:
        return network.integer("intermediate_size")
    return 256 * -(-int(2 * _number(network, "ffn_mult") * hidden / 3) // 256)
