"""Reads a Hugging Face config.json as an `Architecture`: its layers, its embeddings, and how its weights are stored.

An architecture that is not known is refused by name, and so is a known one that lacks a key: a guess would be a number
without evidence. Only the language model is described. A vision or audio encoder stores no keys and values, and its
weights are not counted; `unread` names it.

Worked example: `parse({"model_type": "llama", "hidden_size": 4096, ...})` has 32 equal layers; with
`{"model_type": "bert"}` it raises `UnknownArchitecture: config.json: model_type: must be one of ..., got 'bert'`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from . import families_hybrid as hybrid
from . import families_sparse as sparse
from .families import DECODERS, DecoderFamily, build_decoder, hidden_size
from .hf_config import ConfigKeys, UnknownArchitecture
from .layers import DecoderLayer
from .quantization import Quantization, read_quantization

_Build = Callable[[ConfigKeys], tuple[DecoderLayer, ...]]

_BUILDERS: dict[str, _Build] = {
    **{name: partial(build_decoder, family=family) for name, family in DECODERS.items()},
    "mixtral": sparse.build_mixtral,
    "phimoe": sparse.build_phimoe,
    "granitemoe": sparse.build_granitemoe,
    "olmoe": sparse.build_olmoe,
    "qwen2_moe": sparse.build_qwen2_moe,
    "qwen3_moe": sparse.build_qwen3_moe,
    "qwen3_vl_moe_text": sparse.build_qwen3_moe,
    "glm4_moe": sparse.build_glm4_moe,
    "gpt_oss": sparse.build_gpt_oss,
    "minimax_m2": sparse.build_minimax_m2,
    "minimax_m3": sparse.build_minimax_m3,
    "llama4_text": sparse.build_llama4,
    "mimo_v2_flash": sparse.build_mimo_v2,
    "gemma4_text": sparse.build_gemma4,
    "deepseek_v2": sparse.build_deepseek,
    "deepseek_v3": sparse.build_deepseek,
    "deepseek_v32": sparse.build_deepseek,
    "kimi_k2": sparse.build_deepseek,
    "glm_moe_dsa": sparse.build_deepseek,
    "qwen3_next": hybrid.build_qwen3_next,
    "qwen3_5_text": hybrid.build_qwen3_next,
    "qwen3_5_moe_text": hybrid.build_qwen3_next,
    "kimi_linear": hybrid.build_kimi_linear,
    "nemotron_h": hybrid.build_nemotron_h,
    "bamba": hybrid.build_bamba,
    "granitemoehybrid": hybrid.build_granite_hybrid,
    "jamba": hybrid.build_jamba,
    "mamba": hybrid.build_mamba,
    "falcon_mamba": hybrid.build_mamba,
    "lfm2": hybrid.build_lfm2,
    "gemma3n_text": hybrid.build_gemma3n,
    "nemotron-nas": hybrid.build_nemotron_nas,
}
# A model that also reads images or sound has its language model in a section, with or without a type of its own.
_SECTIONS = {"minimax_m3_vl": "minimax_m3", "qwen2_vl": "qwen2", "qwen2_5_vl": "qwen2", "mistral3": "mistral"}
# Families whose embedding is also the output layer unless the config says otherwise.
_TIED = frozenset(
    {name for name, family in DECODERS.items() if family.tied}
    | {"gemma3n_text", "gemma4_text", "granitemoe", "lfm2"}
    | {"mamba", "falcon_mamba", "granitemoehybrid"}
)
# Families whose weights hold parts that are not counted here; their KV cache is.
_UNCOUNTED = {
    "gemma3n_text": "per-layer embeddings and AltUp",
    "kimi_k3": "the attention residuals and latent experts of Kimi K3",
}
MODEL_TYPES = tuple(sorted(_BUILDERS))


@dataclass(frozen=True, slots=True)
class Architecture:
    """A language model, as its config.json describes it.

    name:          the model type, as "qwen3_moe".
    hidden:        elements of a token between layers.
    vocabulary:    tokens.
    tied:          whether the embedding is also the output layer.
    outside:       elements of parameters outside the layers, other than embedding and output layer.
    positions:     learned position vectors; 0 if positions are rotary or none.
    head_bias:     whether the output layer adds a bias.
    context:       tokens that the model was trained for; None if the config does not say.
    precision:     of parameters that are not quantised, as "bfloat16"; None if the config does not say.
    quantization:  how linear layers are stored; None if they are not quantised.
    unread:        what the config has and this record does not describe, in words.
    uncounted:     parts of the language model whose weights are not counted; empty if all are.
    """

    name: str
    hidden: int
    vocabulary: int
    tied: bool
    layers: tuple[DecoderLayer, ...]
    outside: int
    positions: int
    head_bias: bool
    context: int | None
    precision: str | None
    quantization: Quantization | None
    unread: tuple[str, ...] = ()
    uncounted: str = ""


def parse(document: Mapping[str, object], quantization: Mapping[str, object] | None = None) -> Architecture:
    """Returns the architecture of a parsed config.json.

    quantization: the parsed hf_quant_config.json, which some checkpoints of ModelOpt have instead of a section.
    Raises UnknownArchitecture with the key if the model type is not known, or if a key is missing or impossible.
    """
    whole = ConfigKeys(document)
    outer = whole.text("model_type")
    keys = next((whole.within(key) for key in ("text_config", "llm_config") if key in whole), whole)
    name = keys.text("model_type", None if keys is whole else _SECTIONS.get(outer, outer))
    build = _BUILDERS.get(name)
    if build is None:
        raise UnknownArchitecture(
            keys.section + "model_type", f"must be one of the {len(MODEL_TYPES)} types that are described here", name
        )
    family = DECODERS.get(name, DecoderFamily())
    hidden = hidden_size(keys)
    norm = hidden * (1 + (family.norm_bias or name == "phimoe"))
    return Architecture(
        name=name,
        hidden=hidden,
        vocabulary=keys.integer("vocab_size"),
        tied=keys.flag("tie_word_embeddings", default=whole.flag("tie_word_embeddings", default=name in _TIED)),
        layers=build(keys),
        outside=family.spare * norm,
        positions=keys.integer(family.positions) if family.positions else 0,
        head_bias=family.head_bias or keys.flag("lm_head_bias", default=name == "phimoe"),
        context=keys.optional("max_position_embeddings"),
        precision=_precision(keys) or _precision(whole),
        quantization=read_quantization(whole, keys, _beside(quantization)),
        unread=tuple(key for key in ("vision_config", "audio_config", "vit_config") if key in whole),
        uncounted=_uncounted(outer, name, keys),
    )


def _beside(quantization: Mapping[str, object] | None) -> ConfigKeys:
    if quantization is None:
        return ConfigKeys({})
    return ConfigKeys({"quantization_config": ConfigKeys(quantization).within("quantization").values})


def _uncounted(outer: str, name: str, keys: ConfigKeys) -> str:
    if name == "gemma4_text" and keys.values.get("hidden_size_per_layer_input") != 0:
        return "per-layer embeddings"
    return _UNCOUNTED.get(outer, _UNCOUNTED.get(name, ""))


def _precision(keys: ConfigKeys) -> str | None:
    for key in ("dtype", "torch_dtype"):
        if isinstance(value := keys.values.get(key), str):
            return value
    return None
