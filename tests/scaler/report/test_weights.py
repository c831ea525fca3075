"""Weights are counted as published and as vLLM allocates them, and take the bits that their quantisation says."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.report.architecture import parse
from scaler.report.hf_config import UnknownArchitecture
from scaler.report.quantization import Quantization, Storage, covers
from scaler.report.weights import count_by_use, count_parameters, matrices, weight_bytes

CONFIGS = json.loads((Path(__file__).parent / "configs.json").read_text())
# Parameters of vLLM 0.32's own classes on these configs, its padding of the vocabulary to a multiple of 64 taken off.
VLLM = {
    "multi-head": 6_738_415_616,
    "grouped-query": 8_030_261_248,
    "multi-query": 111_446_784,
    "explicit head size": 12_247_782_400,
    "windows by interval": 2_614_341_888,
    "windows by index": 20_914_757_184,
    "chunks": 107_769_861_120,
    "latent": 671_026_419_200,
    "latent with an indexer": 671_877_944_064,
    "full layers of another size, in a section": 30_807_445_760,
    "keys wider than values": 308_778_780_864,
    "Gated DeltaNet": 34_660_610_688,
    "Mamba-2": 31_577_940_288,
    "some layers without attention": 4_307_607_552,
}
# The same on the first of eight GPUs.
EACH_OF_EIGHT = {
    "grouped-query": 1_004_015_616,
    "windows by index": 2_618_400_000,
    "latent": 84_780_357_120,
    "latent with an indexer": 85_631_881_984,
}
METHODS = {
    "fp8": ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 8 + 32 / 128**2),
    "awq": ({"quant_method": "awq", "bits": 4, "group_size": 128}, 4 + 20 / 128),
    "gptq": ({"quant_method": "gptq", "bits": 8, "group_size": 32}, 8 + 24 / 32),
    "nf4": ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 4 + 32 / 64),
    "nf4 twice": (
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True},
        4 + 8 / 64,
    ),
    "nvfp4": ({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}, 4 + 8 / 16),
    "compressed-tensors": (
        {
            "quant_method": "compressed-tensors",
            "config_groups": {
                "group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "group_size": 32, "type": "int"}}
            },
            "ignore": ["lm_head"],
        },
        4 + 16 / 32,
    ),
}


@pytest.mark.parametrize("name", VLLM)
def test_parameters_are_those_that_vllm_allocates(name):
    assert count_parameters(parse(CONFIGS[name])) == VLLM[name]


def test_parameters_that_are_not_counted_are_named():
    assert parse(CONFIGS["shared by layers"]).uncounted == "per-layer embeddings and AltUp"
    config = CONFIGS["full layers of another size, in a section"]
    text = config["text_config"] | {"hidden_size_per_layer_input": 256}
    assert parse(config | {"text_config": text}).uncounted == "per-layer embeddings"
    assert parse(config).uncounted == ""


def test_active_parameters_of_experts_are_those_of_one_token():
    arch = parse(CONFIGS["latent"])
    # 37 billion as published, less the embedding, of which a token reads one row.
    use = count_by_use(arch)
    active = use.dense + use.routed * use.experts_per_token / use.experts
    assert active == pytest.approx(37.55e9 - 129_280 * 7168, rel=0.001)
    dense = parse(CONFIGS["grouped-query"])
    assert count_by_use(dense).dense == count_parameters(dense) - 128_256 * 4096


@pytest.mark.parametrize("name", VLLM)
def test_parameters_are_either_dense_or_routed_or_looked_up(name):
    arch = parse(CONFIGS[name])
    dense, routed, experts, chosen = count_by_use(arch)
    looked_up = sum(m.elements for m in matrices(arch) if m.lookup)
    assert dense + routed + looked_up == count_parameters(arch)
    active = sum(m.rows * m.columns * m.active for m in matrices(arch) if not m.lookup)
    assert dense + (routed * chosen // experts if experts else 0) == active


def test_experts_of_deepseek_are_counted_apart():
    assert count_by_use(parse(CONFIGS["latent"]))[1:] == (58 * 256 * 3 * 7168 * 2048, 256, 8)


@pytest.mark.parametrize("name", METHODS)
def test_linear_layers_take_the_bits_of_their_quantisation(name):
    keys, bits = METHODS[name]
    arch = parse(CONFIGS["grouped-query"] | {"quantization_config": keys})
    plain = {"embed_tokens", "lm_head", "norm"} if name != "fp8" else {"embed_tokens", "norm"}
    full = sum(m.elements for m in matrices(arch) if not m.linear or m.module in plain)
    linear = sum(m.elements for m in matrices(arch)) - full
    assert weight_bytes(arch) == pytest.approx(full * 2 + linear * bits / 8)


def test_gguf_is_refused_because_its_precisions_are_not_in_the_config():
    with pytest.raises(UnknownArchitecture, match=r"quant_method: must be one of .*, got 'gguf'"):
        parse(CONFIGS["grouped-query"] | {"quantization_config": {"quant_method": "gguf"}})


def test_only_experts_are_stored_in_mxfp4_and_kernels_round_their_sizes_up():
    """vLLM 0.19 logged 13.64 GiB for gpt-oss 20B on one H100: 2,880 becomes 3,072 and 2,944."""
    arch = parse(CONFIGS["windows by index"] | {"quantization_config": {"quant_method": "mxfp4"}})
    experts = 24 * 32 * 3 * 2880 * 2880
    rounded = 24 * 32 * 3 * 3072 * 2944
    expected = (count_parameters(arch) - experts) * 2 + rounded * (4 + 8 / 32) / 8
    assert weight_bytes(arch) == pytest.approx(expected)
    assert weight_bytes(arch) / 2**30 == pytest.approx(13.64, rel=0.005)


@pytest.mark.parametrize(
    ("pattern", "module"),
    [
        ("lm_head", "lm_head"),
        ("model.layers.0.mlp.gate", "layers.0.mlp.gate"),
        ("model.language_model.layers.3.self_attn*", "layers.3.self_attn.q_proj"),
        ("language_model.model.layers.3.mlp.shared_experts", "layers.3.mlp.shared_experts.up_proj"),
        ("model.layers.7.block_sparse_moe.gate", "layers.7.mlp.gate"),
        ("language_model.model.layers.5.block_sparse_moe.experts.0.w3", "layers.5.mlp.experts.0.up_proj"),
        ("backbone.layers.1.mixer.shared_experts", "layers.1.mlp.shared_experts.up_proj"),
        ("backbone.layers.5.mixer.q_proj", "layers.5.self_attn.q_proj"),
        ("backbone.layers.0.mixer.in_proj", "layers.0.mixer.in_proj"),
        ("re:.*self_attn.*", "layers.12.self_attn.o_proj"),
        ("gate", "layers.5.mlp.gate"),
    ],
)
def test_pattern_of_a_config_covers_a_module(pattern, module):
    assert covers(pattern, module)


@pytest.mark.parametrize(
    ("pattern", "module"),
    [
        ("model.layers.1", "layers.10.mlp.up_proj"),
        ("model.layers.1*.mlp.gate", "layers.10.mlp.gate_proj"),
        ("gate", "layers.5.mlp.gate_proj"),
        ("re:.*mlp\\.(gate|up|down)_proj", "layers.5.mlp.experts.0.up_proj"),
    ],
)
def test_pattern_of_a_config_leaves_a_similar_module_alone(pattern, module):
    assert not covers(pattern, module)


@pytest.mark.parametrize(("name", "elements"), EACH_OF_EIGHT.items())
def test_each_gpu_holds_what_vllm_allocates_on_it(name, elements):
    """Norms, routers and the projections to a latent vector are on every GPU; heads and widths are divided."""
    assert weight_bytes(parse(CONFIGS[name]), tensor_parallel=8) == elements * 2


@given(st.sampled_from(sorted(VLLM)), st.sampled_from([2, 4, 8]))
def test_tensor_parallelism_divides_at_most_by_the_number_of_gpus(name, gpus):
    arch = parse(CONFIGS[name])
    one, each = weight_bytes(arch), weight_bytes(arch, tensor_parallel=gpus)
    assert one / gpus <= each < one


@given(st.sampled_from(sorted(VLLM)), st.floats(1, 8), st.floats(1, 8))
def test_more_bits_take_more_bytes(name, fewer, more):
    arch = parse(CONFIGS[name])
    sizes = [
        weight_bytes(replace(arch, quantization=Quantization("test", (((), Storage(bits)),))))
        for bits in sorted((fewer, more))
    ]
    assert sizes[0] <= sizes[1] <= weight_bytes(arch)


def test_modules_that_a_config_lists_one_by_one_are_stored_as_it_says():
    layers = {
        "model.layers.0.mlp.up_proj": {"quant_algo": "NVFP4", "group_size": 16},
        "model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"},
    }
    keys = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    found = parse(CONFIGS["grouped-query"] | {"quantization_config": keys}).quantization
    modules = ("layers.0.mlp.up_proj", "layers.0.self_attn.q_proj", "layers.1.mlp.up_proj")
    assert [(s := found.storage_of(module)) and s.bits_per_weight for module in modules] == [4.5, 8, None]


def test_experts_beside_a_dense_block_are_not_ignored_with_it():
    """Gemma 4 26B in NVFP4 leaves `mlp` alone and quantises `experts`."""
    config = CONFIGS["full layers of another size, in a section"]
    experts = {"enable_moe_block": True, "num_experts": 128, "top_k_experts": 8, "moe_intermediate_size": 704}
    quantization = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["model.language_model.layers.*.mlp*"]}
    arch = parse(config | {"text_config": config["text_config"] | experts, "quantization_config": quantization})
    stored = {m.module: arch.quantization.storage_of(m.module) for m in matrices(arch) if m.linear}
    assert stored["layers.0.experts.0.up_proj"].bits == 4
    assert stored["layers.0.mlp.up_proj"] is None


@pytest.mark.parametrize("expression", ["re:(a+)+b", "re:(model|layers)*x", "re:.*a.*b.*c.*d", "re:("])
def test_expression_that_could_match_forever_is_refused(expression):
    with pytest.raises(UnknownArchitecture, match="quantization_config"):
        covers(expression, "layers.3.mlp.down_proj")
