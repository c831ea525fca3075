"""Reads measured serving points: mean TTFT and time per output token of 15 models on 6 GPU kinds and 3 engines.

Data: github.com/ai-dynamo/aiconfigurator at 095f58a, `silicon_sample.csv` (Apache-2.0, NVIDIA; measured 2025 to 2026).
`fetch` downloads it. Aggregated serving only (one pool of GPUs that reads prompts and generates): `tpot` of the
disaggregated rows is of a pool whose real batch the file does not give.

A deployment is an engine, a model, its precisions and its parallelism. A point is a deployment on a GPU kind at one
batch and one length of prompt and output. Repeats of a point are one point, their median.

Worked example: `load(folder)` has Llama 3.1 70B in FP8 with vLLM on 2 H100 at batch 4, prompts of 1,024 tokens and
outputs of 1,024: 35.3 GB read per GPU and step, 17.4 ms per output token.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import NamedTuple, TypeAlias
from urllib.request import urlopen

from scaler.report.work import GpuSplit, GpuWork, ModelShape, StepLoad, decode_work, prefill_work

FILE = "silicon_sample.csv"
URL = (
    "https://raw.githubusercontent.com/ai-dynamo/aiconfigurator/095f58a51c4ca8e61b66ec108d86f223f8d559ce/"
    f"aic-core/src/aiconfigurator_core/systems/{FILE}"
)
# Rows of scaler/report/gpus.yaml. GB300 is in disaggregated rows only.
GPUS = {
    "h100_sxm": "H100 80GB HBM3", "h200_sxm": "H200", "b200_sxm": "B200", "b300_sxm": "B300", "gb200": "GB200",
}  # fmt: skip
WEIGHT_BYTES = {"bf16": 2.0, "fp8": 1.0, "fp4": 0.5625, "int4": 0.5625}


def gqa(layers: int, hidden: int, heads: int, kv_heads: int, head: int) -> float:
    """Parameters of grouped-query attention."""
    return layers * 2 * hidden * head * (heads + kv_heads)


def mla(layers: int, hidden: int, heads: int, query: int, latent: int, plain: int, rope: int, value: int) -> float:
    """Parameters of latent attention."""
    per_layer = hidden * query + query * heads * (plain + rope) + hidden * (latent + rope)
    return layers * (per_layer + latent * heads * (plain + value) + heads * value * hidden)


class Family(NamedTuple):
    """One architecture: models of one family are left out together. kv: KV cache elements per token."""

    dense: float
    kv: float
    routed: float = 0.0
    experts: int = 1
    experts_per_token: int = 1
    has_latent_kv: bool = False


# From the config.json of each model on Hugging Face. dense: attention, shared and dense layers, the output layer.
# gpt-oss: half of the layers have a window of 128 tokens, Qwen3.5: three of four are linear attention: no KV growth.
FAMILIES = {
    "MiniMax-M2.5": Family(
        gqa(62, 3072, 48, 8, 128) + 200064 * 3072, 62 * 8 * 128 * 2, 62 * 256 * 3 * 3072 * 1536, 256, 8
    ),
    "Qwen3-235B-A22B": Family(
        gqa(94, 4096, 64, 4, 128) + 151936 * 4096, 94 * 4 * 128 * 2, 94 * 128 * 3 * 4096 * 1536, 128, 8
    ),
    "Qwen3-32B": Family(gqa(64, 5120, 64, 8, 128) + 64 * 3 * 5120 * 25600 + 151936 * 5120, 64 * 8 * 128 * 2),
    "Qwen3.5-397B-A17B": Family(
        gqa(15, 4096, 32, 2, 256) + 45 * 4096 * (64 * 3 + 16 * 2) * 128 + 60 * 3 * 4096 * 1024 + 248320 * 4096,
        15 * 2 * 256 * 2, 60 * 512 * 3 * 4096 * 1024, 512, 10,
    ),
    "DeepSeek-V3": Family(
        mla(61, 7168, 128, 1536, 512, 128, 64, 128) + 58 * 3 * 7168 * 2048 + 3 * 3 * 7168 * 18432 + 129280 * 7168,
        61 * 576, 58 * 256 * 3 * 7168 * 2048, 256, 8, has_latent_kv=True,
    ),
    "Kimi-K2.5": Family(
        mla(61, 7168, 64, 1536, 512, 128, 64, 128) + 60 * 3 * 7168 * 2048 + 3 * 7168 * 18432 + 163840 * 7168,
        61 * 576, 60 * 384 * 3 * 7168 * 2048, 384, 8, has_latent_kv=True,
    ),
    "GLM-5": Family(
        mla(78, 6144, 64, 2048, 512, 192, 64, 256) + 75 * 3 * 6144 * 2048 + 3 * 3 * 6144 * 12288 + 154880 * 6144,
        78 * 576, 75 * 256 * 3 * 6144 * 2048, 256, 8, has_latent_kv=True,
    ),
    "gpt-oss-120b": Family(
        gqa(36, 2880, 64, 8, 64) + 201088 * 2880, 18 * 8 * 64 * 2, 36 * 128 * 3 * 2880 * 2880, 128, 4
    ),
    "Llama-3.1-70B": Family(gqa(80, 8192, 64, 8, 128) + 80 * 3 * 8192 * 28672 + 128256 * 8192, 80 * 8 * 128 * 2),
    "Llama-3.1-8B": Family(gqa(32, 4096, 32, 8, 128) + 32 * 3 * 4096 * 14336 + 128256 * 4096, 32 * 8 * 128 * 2),
}  # fmt: skip


class Deployment(NamedTuple):
    """version: of the engine; empty if all versions count as one."""

    engine: str
    version: str
    model: str
    precision: str
    gemm: str
    moe: str
    tensor: int
    data: int
    moe_tensor: str
    moe_expert: str


class Point(NamedTuple):
    """decode, prefill: per GPU. tpot, ttft: seconds; None if the row has none."""

    deployment: Deployment
    load: StepLoad
    gpu: str
    decode: GpuWork
    prefill: GpuWork
    tpot: float | None
    ttft: float | None


Times: TypeAlias = tuple[float | None, float | None]  # tpot and ttft of one row
Repeats: TypeAlias = dict[tuple[Deployment, StepLoad, str], list[Times]]


def fetch(folder: Path) -> None:
    """Downloads the file (Apache-2.0, 1.9 MB) into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    with urlopen(URL, timeout=60) as response:
        (folder / FILE).write_bytes(response.read())


def family_of(model: str) -> str:
    """DeepSeek V3, V3.1 and R1 have one architecture, so that leaving one out leaves out all."""
    name = model.split("/")[1]
    if name.startswith("DeepSeek"):
        return "DeepSeek-V3"
    return next(family for family in FAMILIES if name.startswith(family))


def load(folder: Path) -> list[Point]:
    """All points of aggregated serving whose precision is given."""
    return summarize(read(folder))


def load_any_version(folder: Path) -> list[Point]:
    """As `load`, but the points of all versions of an engine are repeats of one."""
    merged: Repeats = defaultdict(list)
    for (deployment, asked, gpu), times in read(folder).items():
        merged[deployment._replace(version=""), asked, gpu] += times
    return summarize(merged)


def read(folder: Path) -> Repeats:
    repeats: Repeats = defaultdict(list)
    with (folder / FILE).open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            if row["mode"] != "agg" or row["precision"] not in WEIGHT_BYTES:
                continue
            deployment = Deployment(
                row["backend"], row["backend_version"], row["model_path"], row["precision"],
                row["gemm_quant_mode"], row["moe_quant_mode"],
                int(float(row["tp_size"])), max(1, int(float(row["attention_dp_size"] or 1))),
                row["moe_tp_size"], row["moe_ep_size"],
            )  # fmt: skip
            asked = StepLoad(float(row["batch_size"]), float(row["isl"]), float(row["osl"]))
            times = (milliseconds(row["silicon_tpot_ms"]), milliseconds(row["silicon_ttft_ms"]))
            repeats[deployment, asked, GPUS[row["system"]]].append(times)
    return repeats


def summarize(repeats: Repeats) -> list[Point]:
    return [point(*key, times) for key, times in repeats.items()]


def point(deployment: Deployment, asked: StepLoad, gpu: str, times: list[Times]) -> Point:
    family = FAMILIES[family_of(deployment.model)]
    weight_bytes = WEIGHT_BYTES[deployment.precision]
    shape = ModelShape(
        family.dense, family.routed, family.experts, family.experts_per_token, weight_bytes, family.kv,
        kv_is_split=not family.has_latent_kv,
    )  # fmt: skip
    split = GpuSplit(deployment.tensor, deployment.data)
    whole = asked._replace(batch=asked.batch * deployment.data)  # the file's batch is of one data-parallel rank
    tpot, ttft = ([each[index] for each in times if each[index] is not None] for index in (0, 1))
    return Point(
        deployment, asked, gpu, decode_work(shape, whole, split), prefill_work(shape, whole, split),
        median(tpot) if tpot else None, median(ttft) if ttft else None,
    )  # fmt: skip


def milliseconds(text: str) -> float | None:
    value = float(text) / 1e3 if text else 0.0
    return value if value > 0.0 else None
