"""Compares Tidegate's memory arithmetic with vLLM's own, configuration by configuration.

    python benchmarks/rightsizing/memory.py --oracle /tmp/oracle /tmp/configs/*/*.json

The configurations are public and are not part of this repository: the `model_configs` of ai-dynamo/aiconfigurator,
`model_configs` of inference-sim/inference-sim and `hf_configs` of alibaba/InferSim (each Apache-2.0), `configs/model`
of casys-kaist/LLMServingSim (MIT), and the defaults of transformers' configuration classes (Apache-2.0), which
`vllm_oracle.py --defaults` writes. `vllm_oracle.py` writes the folder of answers.

Equal means: the bytes of every layer's page, as a multiset, with its window; the number of blocks of 1,000 GiB; and the
tokens that fit at a length of 8,192. Parameters are compared after rounding the vocabulary up as vLLM does.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from math import prod
from pathlib import Path

from scaler.report import architecture, kv_cache, weights
from scaler.report.hf_config import UnknownArchitecture
from scaler.report.layers import LatentAttention

AVAILABLE_BYTES = 1000 * 2**30
MAX_MODEL_LEN = 8192


def own_layers(caches: list[kv_cache.LayerCache]) -> Counter[tuple[float, int, bool]]:
    return Counter((cache.size, cache.window, cache.kind is kv_cache.CacheKind.STATE) for cache in caches)


def oracle_layers(answer: dict) -> Counter[tuple[float, int, bool]]:
    """Per token, or per state."""
    return Counter(
        (layer["bytes"] / (1 if layer["state"] else layer["block_size"]), layer["window"] or 0, layer["state"])
        for layer in answer["layers"].values()
    )


def parameters(arch: architecture.Architecture, gpus: int) -> float:
    """On one GPU, with the vocabulary rounded up to a multiple of 64."""
    rows = -(-arch.vocabulary // 64) * 64 - arch.vocabulary
    padding = rows * arch.hidden * (1 if arch.tied else 2) + rows * arch.head_bias
    return padding / gpus + sum(m.elements / min(gpus, m.shards) for m in weights.matrices(arch))


def compare(path: Path, answer: dict, kv_precision: str | None, gpus: int) -> dict[str, object]:
    try:
        arch = architecture.parse(json.loads(path.read_text()))
    except UnknownArchitecture as error:
        return {"refused": str(error)}
    if "error" in answer:
        return {"no oracle": answer["error"]}
    caches = list(
        kv_cache.layer_caches(
            arch,
            precision="bfloat16",
            kv_precision=kv_precision,
            tensor_parallel=gpus,
            prefix_caching=answer["pool"]["prefix_caching"],
        )
    )
    latent = any(isinstance(layer.mixer, LatentAttention) for layer in arch.layers)
    pool, theirs = None, answer["pool"]
    if "blocks" in theirs:
        pool = kv_cache.divide(
            caches,
            AVAILABLE_BYTES,
            MAX_MODEL_LEN,
            batch_tokens=theirs["in_flight"],
            latent=latent,
        )
    counted = sum(prod(shape) for shape in answer["parameters"].values())
    return {
        "layers": own_layers(caches) == oracle_layers(answer),
        "blocks": pool is not None and pool.blocks == theirs["blocks"],
        "tokens": pool is not None and pool.tokens == theirs["tokens"],
        "parameters": parameters(arch, gpus) / counted - 1,
        "own": (dict(own_layers(caches)), pool),
        "oracle": (dict(oracle_layers(answer)), theirs),
        "uncounted": arch.uncounted,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--oracle", type=Path, required=True, help="folder that vllm_oracle.py wrote")
    parser.add_argument("--kv-precision")
    parser.add_argument("--tensor-parallel", type=int, default=1)
    parser.add_argument("--all", action="store_true", help="print equal ones too")
    parser.add_argument("configs", nargs="+", type=Path)
    options = parser.parse_args()
    totals: Counter[str] = Counter()
    for path in options.configs:
        name = f"{path.parent.name}--{path.name.removesuffix('_config.json')}"
        found = options.oracle / f"{name}.json"
        if not found.exists():
            totals["not asked"] += 1
            continue
        result = compare(path, json.loads(found.read_text()), options.kv_precision, options.tensor_parallel)
        if "layers" not in result:
            totals.update(result.keys())
            print(name, result)
            continue
        totals["compared"] += 1
        for key in ("layers", "blocks", "tokens"):
            totals[f"equal {key}"] += bool(result[key])
        totals["equal parameters"] += result["parameters"] == 0
        totals["parameters within 1 %"] += abs(float(str(result["parameters"]))) <= 0.01
        if options.all or not (result["layers"] and result["blocks"] and result["tokens"]) or result["parameters"]:
            print(name, {key: result[key] for key in ("layers", "blocks", "tokens", "parameters", "uncounted")})
        if not (result["layers"] and result["tokens"]):
            print("   own   ", result["own"], "\n   oracle", result["oracle"])
    print(dict(totals))


if __name__ == "__main__":
    main()
