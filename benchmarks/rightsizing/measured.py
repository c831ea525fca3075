"""Compares the estimate of serving memory with measured starts of vLLM.

    python benchmarks/rightsizing/measured.py MEASURED.csv

The file has a row per start: model, tp, kv_cache_dtype, max_model_len, quant, and in GiB weights, activation,
non_torch, non_kv (their sum), graphs, gpu_gib; utilization; kv_tokens; batch_tokens and sequences; engine, 0.19 or
0.11, is the fit to compare with. A part that was not logged is empty. Sources and licences are in
`benchmarks/RIGHTSIZING.md`. Models that also read images are left out.
"""

from __future__ import annotations

import csv
import sys
from dataclasses import replace
from pathlib import Path
from statistics import mean

from scaler.report import architecture, memory
from scaler.report.quantization import Quantization, Storage


def decoder(
    kind: str, hidden: int, layers: int, heads: int, kv: int, width: int, vocabulary: int, **more: object
) -> dict:
    return {
        "model_type": kind,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "intermediate_size": width,
        "vocab_size": vocabulary,
        "torch_dtype": "bfloat16",
    } | more


MODELS = {
    "CodeLlama-7b": decoder("llama", 4096, 32, 32, 32, 11008, 32016),
    "DeepSeek-V2-Lite": decoder("deepseek_v2", 2048, 27, 16, 16, 10944, 102400)
    | {"kv_lora_rank": 512, "q_lora_rank": None, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}
    | {"n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6, "moe_intermediate_size": 1408}
    | {"first_k_dense_replace": 1, "topk_method": "greedy"},
    "gemma-2-2b": decoder("gemma2", 2304, 26, 8, 4, 9216, 256000, head_dim=256, sliding_window=4096),
    "gemma-2-9b": decoder("gemma2", 3584, 42, 16, 8, 14336, 256000, head_dim=256, sliding_window=4096),
    "gemma-2-27b": decoder("gemma2", 4608, 46, 32, 16, 36864, 256000, head_dim=128, sliding_window=4096),
    "granite-3.1-2b": decoder("granite", 2048, 40, 32, 8, 8192, 49155),
    "granite-3.1-8b": decoder("granite", 4096, 40, 32, 8, 12800, 49155),
    "Llama-3.1-8B": decoder("llama", 4096, 32, 32, 8, 14336, 128256),
    "Llama-3.3-70B": decoder("llama", 8192, 80, 64, 8, 28672, 128256),
    "phi-4": decoder("phi3", 5120, 40, 40, 10, 17920, 100352),
    "Mixtral-8x7B": decoder("mixtral", 4096, 32, 32, 8, 14336, 32000, num_local_experts=8, num_experts_per_tok=2),
    "Qwen2.5-7B": decoder("qwen2", 3584, 28, 28, 4, 18944, 152064),
    "Qwen2.5-72B": decoder("qwen2", 8192, 80, 64, 8, 29568, 152064),
    "Kimi-Dev-72B": decoder("qwen2", 8192, 80, 64, 8, 29568, 152064),
    "R1-Distill-Qwen-1.5B": decoder("qwen2", 1536, 28, 12, 2, 8960, 151936),
    "Qwen3-0.6B": decoder("qwen3", 1024, 28, 16, 8, 3072, 151936, head_dim=128, tie_word_embeddings=True),
    "Qwen3-32B": decoder("qwen3", 5120, 64, 64, 8, 25600, 151936, head_dim=128),
    "gpt-oss-120b": decoder("gpt_oss", 2880, 36, 64, 8, 2880, 201088, head_dim=64, sliding_window=128)
    | {"num_local_experts": 128, "num_experts_per_tok": 4},
    "Qwen3-8B": decoder("qwen3", 4096, 36, 32, 8, 12288, 151936, head_dim=128),
    "Qwen3-30B-A3B": decoder("qwen3_moe", 2048, 48, 32, 4, 6144, 151936, head_dim=128)
    | {"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768},
    "gpt-oss-20b": decoder("gpt_oss", 2880, 24, 64, 8, 2880, 201088, head_dim=64, sliding_window=128)
    | {"num_local_experts": 32, "num_experts_per_tok": 4},
}
SCHEMES = {
    "fp8": Quantization("fp8", (((), Storage(8)),), ("lm_head",)),
    "w4a16": Quantization("gptq", (((), Storage(4, 128, 16)),), ("lm_head",)),
    "mxfp4": Quantization("mxfp4", ((("mlp.experts",), Storage(4, 32, 8, 256, 128)),)),
}


def estimate(row: dict[str, str]) -> memory.ServingMemory:
    arch = architecture.parse(MODELS[row["model"]])
    if row["quant"]:
        arch = replace(arch, quantization=SCHEMES[row["quant"]])
    return memory.serving(
        arch,
        kv_precision=None if row["kv_cache_dtype"] == "auto" else row["kv_cache_dtype"],
        tensor_parallel=int(row["tp"]),
        max_tokens_in_batch=int(row["batch_tokens"]),
        max_sequences=int(row["sequences"]),
        max_model_len=int(row["max_model_len"]),
        gpu_bytes=float(row["gpu_gib"]) * 2**30,
        utilization=float(row["utilization"]),
        engine={"0.19": memory.VLLM_019, "0.11": memory.VLLM_011}[row["engine"]],
    )


def pair(ours: float, theirs: str) -> str:
    return f"{ours / 2**30:.2f} / {theirs or '-'}"


def main() -> None:
    print("| model | GPUs | stored | weights | activations | overhead | sum | error | graphs | KV tokens | error |")
    print("| :--- | ---: | :--- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    errors: dict[str, list[float]] = {"sum": [], "KV tokens": []}
    for row in csv.DictReader(Path(sys.argv[1]).read_text().splitlines()):
        found = estimate(row)
        parts = (found.weights, found.activations, found.overhead)
        cells = [pair(part.bytes, row[key]) for part, key in zip(parts, ("weights", "activation", "non_torch"))]  # noqa: B905
        error = found.fixed / 2**30 / float(row["non_kv"]) - 1
        errors["sum"].append(error)
        cells += [pair(found.fixed, row["non_kv"]), f"{error:+.1%}", pair(found.cuda_graphs.bytes, row["graphs"])]
        tokens = found.pool.tokens if found.pool else 0
        if row["kv_tokens"]:
            errors["KV tokens"].append(tokens / int(row["kv_tokens"]) - 1)
            cells += [f"{tokens:,} / {int(row['kv_tokens']):,}", f"{errors['KV tokens'][-1]:+.1%}"]
        else:
            cells += [f"{tokens:,} / -", "-"]
        stored = (row["quant"] or "bf16") + (", KV fp8" if row["kv_cache_dtype"] == "fp8" else "")
        print(f"| {row['model']} | {row['tp']} | {stored} | {' | '.join(cells)} |")
    for name, values in errors.items():
        within = sum(abs(value) <= 0.05 for value in values)
        worst = max(values, key=abs)
        print(f"{name}: {within} of {len(values)} within 5 %, mean {mean(map(abs, values)):.1%}, worst {worst:+.1%}")


if __name__ == "__main__":
    main()
