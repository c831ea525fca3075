"""Reads how the weights of a model are stored: bits per weight and scales, and which modules are left alone.

Only linear layers are quantised; embeddings, norms and routers never are. A method that is not known is refused:
GGUF in particular mixes precisions in a file that config.json does not describe.

Sources of the layouts: the loaders of vLLM 0.32 in `model_executor/layers/quantization/` (Apache-2.0).

Worked example: AWQ with `group_size` 128 stores 4 bits per weight and, per 128 weights, a 16-bit scale and a 4-bit zero
point: 4 + 20/128 = 4.156 bits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache

from .hf_config import ConfigKeys, UnknownArchitecture


@dataclass(frozen=True, slots=True)
class Storage:
    """How one linear layer is stored.

    bits:        of each weight.
    group:       weights that share a scale; 0: one scale per output, or per tensor, which is not counted.
    group_bits:  of the scale and the zero point of one group.
    hidden_step, width_step: multiples that kernels round the hidden size and the width of a block up to.
    """

    bits: float
    group: int = 0
    group_bits: float = 0.0
    hidden_step: int = 1
    width_step: int = 1

    @property
    def bits_per_weight(self) -> float:
        return self.bits + (self.group_bits / self.group if self.group else 0.0)


@dataclass(frozen=True, slots=True)
class Quantization:
    """How the linear layers of a model are stored.

    method:   as the config names it, for people.
    rules:    (patterns of modules, storage); the first that covers a module holds. No patterns: all modules.
    ignored:  patterns of modules that are not quantised.
    modules:  storage by the path of a module, for configs that list each one.
    """

    method: str
    rules: tuple[tuple[tuple[str, ...], Storage], ...]
    ignored: tuple[str, ...] = ()
    modules: Mapping[str, Storage] = field(default_factory=dict)

    def storage_of(self, module: str) -> Storage | None:
        """Returns how a module is stored; None if it is not quantised."""
        if module in self.modules:
            return self.modules[module]
        if any(covers(pattern, module) for pattern in self.ignored):
            return None
        for patterns, storage in self.rules:
            if not patterns or any(covers(pattern, module) for pattern in patterns):
                return storage
        return None


def covers(pattern: str, module: str) -> bool:
    """Whether a pattern of a config covers a module, as "layers.3.mlp.down_proj".

    A pattern is a regular expression (`re:`), a glob, or a module, its parent, or part of its path.
    """
    if pattern.startswith("re:"):
        return _compiled(pattern[3:]).match(f"model.{module}") is not None
    plain = canonical(pattern)
    if "*" in plain:
        return fnmatchcase(module, plain) or fnmatchcase(module, f"{plain}.*")
    return f".{plain}." in f".{module}."


# A path has some 60 characters: three repetitions take at most 60**3 steps, and a repeated group 2**60.
MOST_REPEATS = 3
_REPEATS, _REPEATED_GROUP = re.compile(r"[*+{]"), re.compile(r"\)[*+{?]")


@cache
def _compiled(text: str) -> re.Pattern[str]:
    """Compiles a config's own expression. Refuses what is none, and what could take more than a moment to match."""
    key, bound = "quantization_config", f"expressions must have at most {MOST_REPEATS} repetitions, of no group"
    if len(_REPEATS.findall(text)) > MOST_REPEATS or _REPEATED_GROUP.search(text):
        raise UnknownArchitecture(key, bound, text)
    try:
        return re.compile(text)
    except re.error as error:
        raise UnknownArchitecture(key, f"must be a regular expression ({error})", text) from None


@cache
def canonical(module: str) -> str:
    """Returns the path of a module without the names that families put before and between."""
    path = re.sub(r"^((model|language_model|backbone)\.)+", "", module)
    for pattern, name in _NAMES:
        path = pattern.sub(name, path)
    return path


# What families call the same modules.
_NAMES = (
    (re.compile(r"block_sparse_moe|feed_forward"), "mlp"),
    (re.compile(r"mixer(?=\.(experts|shared_experts|gate|up_proj|down_proj))"), "mlp"),
    (re.compile(r"linear_attn|mixer(?=\.[qkvo]_proj)"), "self_attn"),
    (re.compile(r"(?<=\.)w1$"), "gate_proj"),
    (re.compile(r"(?<=\.)w2$"), "down_proj"),
    (re.compile(r"(?<=\.)w3$"), "up_proj"),
)


def read_quantization(*sections: ConfigKeys) -> Quantization | None:
    """Returns the quantisation of the first section that has one, None if none has. Refuses an unknown method."""
    holder = next((keys for keys in sections if "quantization_config" in keys), None)
    if holder is None:
        return None
    keys = holder.within("quantization_config")
    method = keys.text("quant_method", "modelopt" if "quant_algo" in keys else None)
    read = _METHODS.get(method)
    if read is None:
        raise UnknownArchitecture(keys.section + "quant_method", f"must be one of {', '.join(_METHODS)}", method)
    ignored = tuple(
        str(pattern)
        for key in ("ignore", "modules_to_not_convert", "exclude_modules", "ignored_layers")
        for pattern in _list(keys, key)
    )
    if method in ("gptq", "awq", "bitsandbytes"):
        ignored += ("lm_head",)
    return Quantization(method, read(keys), ignored, _listed_modules(keys))


def _list(keys: ConfigKeys, key: str) -> list[object]:
    value = keys.values.get(key)
    return list(value) if isinstance(value, list | tuple) else []


_Rules = tuple[tuple[tuple[str, ...], Storage], ...]


def _fp8(keys: ConfigKeys) -> _Rules:
    block = keys.values.get("weight_block_size")
    if isinstance(block, list | tuple) and all(isinstance(side, int) for side in block):
        return (((), Storage(8, int(block[0]) * int(block[1]), 32)),)
    return (((), Storage(8)),)


def _integers(keys: ConfigKeys) -> _Rules:
    """GPTQ and AWQ: a 16-bit scale and a zero point of the weights' own bits per group."""
    bits = keys.integer("bits") if "bits" in keys else keys.integer("w_bit")
    group = keys.integer("group_size", 128, least=-1)
    return (((), Storage(bits, max(group, 0), 16 + bits)),)


def _bitsandbytes(keys: ConfigKeys) -> _Rules:
    """NF4: one 32-bit maximum per 64 weights, or 8 bits of it if it is quantised a second time. Int8: per row."""
    if keys.flag("load_in_4bit", default=False):
        return (((), Storage(4, 64, 8 if keys.flag("bnb_4bit_use_double_quant", default=False) else 32)),)
    return (((), Storage(8)),)


def _mxfp4(_keys: ConfigKeys) -> _Rules:
    """Four bits, and one shared exponent of 8 bits per 32 weights, in experts only.

    Marlin's and TensorRT-LLM's kernels round up (`mxfp4_round_up_hidden_size_and_intermediate_size`); others do less.
    """
    return ((("mlp.experts",), Storage(4, 32, 8, hidden_step=256, width_step=128)),)


_ALGORITHMS = {
    "FP8": Storage(8),
    "MXFP8": Storage(8, 32, 8),
    "NVFP4": Storage(4, 16, 8),
    "W4A16_AWQ": Storage(4, 128, 16),
    "W4A16_NVFP4": Storage(4, 16, 8),
}


def _modelopt(keys: ConfigKeys) -> _Rules:
    algorithm = keys.text("quant_algo")
    if algorithm in _ALGORITHMS:
        return (((), _ALGORITHMS[algorithm]),)
    if "config_groups" in keys:
        return _groups(keys)
    keys.within("quantized_layers")  # refuses a mixture without it; its modules are read apart
    return ()


def _listed_modules(keys: ConfigKeys) -> dict[str, Storage]:
    if "quantized_layers" not in keys:
        return {}
    layers = keys.within("quantized_layers")
    return {canonical(module): _algorithm(layers.within(module)) for module in layers.values}


def _algorithm(keys: ConfigKeys) -> Storage:
    name = keys.text("quant_algo")
    if name not in _ALGORITHMS:
        raise UnknownArchitecture(f"{keys.section}quant_algo", f"must be one of {', '.join(_ALGORITHMS)}", name)
    return _ALGORITHMS[name]


def _groups(keys: ConfigKeys) -> _Rules:
    """compressed-tensors: per group its targets, bits, and scales of 16 bits, or of 8 for floats of 4 bits."""
    groups = keys.within("config_groups")
    rules = []
    for name in groups.values:
        group = groups.within(name)
        weights = group.within("weights")
        bits, size = weights.integer("num_bits"), weights.optional("group_size") or 0
        small_float = bits == 4 and weights.text("type", "int") == "float"  # noqa: PLR2004 - bits
        targets = tuple(str(target) for target in _list(group, "targets") if target != "Linear")
        rules.append((targets, Storage(bits, size, 8 if small_float else 16)))
    return tuple(rules)


_METHODS: dict[str, Callable[[ConfigKeys], _Rules]] = {
    "fp8": _fp8,
    "gptq": _integers,
    "awq": _integers,
    "bitsandbytes": _bitsandbytes,
    "mxfp4": _mxfp4,
    "modelopt": _modelopt,
    "compressed-tensors": _groups,
}
