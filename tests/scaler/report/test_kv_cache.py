"""Bytes of the KV cache are those that vLLM's own arithmetic gives, for each kind of attention."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.report.architecture import parse
from scaler.report.hf_config import UnknownArchitecture
from scaler.report.kv_cache import CacheKind, LayerCache, context_bytes, divide, layer_caches, token_bytes
from scaler.report.layers import LatentAttention

CONFIGS = json.loads((Path(__file__).parent / "configs.json").read_text())
# What vLLM 0.32 stores, by benchmarks/rightsizing/vllm_oracle.py on these configs: bytes per token of full layers, per
# token of layers with a window, per sequence; then the tokens of 1,000 GiB in sequences of 8,192, 2,048 in a step.
VLLM = {
    "multi-head": (524_288, 0, 0, 2_048_000),
    "grouped-query": (131_072, 0, 0, 8_192_000),
    "multi-query": (3_072, 0, 0, 349_525_328),
    "explicit head size": (163_840, 0, 0, 6_553_600),
    "windows by interval": (53_248, 53_248, 0, 11_509_960),
    "windows by index": (24_576, 24_576, 0, 34_467_821),
    "chunks": (49_152, 147_456, 0, 5_461_332),
    "latent": (70_272, 0, 0, 15_279_792),
    "latent with an indexer": (78_324, 0, 0, 13_708_960),
    "full layers of another size, in a section": (81_920, 819_200, 0, 2_748_110),
    "keys wider than values": (23_040, 199_680, 0, 12_678_491),
    "Gated DeltaNet": (20_480, 0, 64_389_120, 29_051_172),
    "Mamba-2": (6_144, 0, 49_082_368, 42_690_048),
    "shared by layers": (8_192, 32_768, 0, 58_052_650),
    "some layers without attention": (10_240, 0, 0, 104_857_600),
}


def pool(config, **options):
    arch = parse(config)
    caches = list(layer_caches(arch, **options))
    latent = any(isinstance(layer.mixer, LatentAttention) for layer in arch.layers)
    return divide(caches, 1000 * 2**30, 8192, batch_tokens=2048, latent=latent)


@pytest.mark.parametrize("name", CONFIGS)
def test_bytes_per_token_and_sequence_are_those_of_vllm(name):
    assert token_bytes(parse(CONFIGS[name])) == VLLM[name][:3]


@pytest.mark.parametrize("name", CONFIGS)
def test_tokens_that_fit_are_those_of_vllm(name):
    assert pool(CONFIGS[name]).tokens == VLLM[name][3]


@pytest.mark.parametrize("name", CONFIGS)
def test_fp8_halves_what_is_stored_per_token(name):
    full, windowed, state = token_bytes(parse(CONFIGS[name]))
    eight = token_bytes(parse(CONFIGS[name]), kv_precision="fp8")
    if name == "latent with an indexer":  # 656 bytes in FP8, scales and the rotary key included, and the index's 132
        assert eight == (61 * (656 + 132), 0, 0)
    else:
        assert eight == (full / 2, windowed / 2, state)


def test_layer_that_shares_an_indexer_stores_no_index_but_reads_as_sparsely():
    """GLM 5.2, of which vLLM 0.32 stores 656 bytes in FP8 in all layers and 132 for the index in some."""
    kinds = ["full", "shared", "shared", "shared"] * 15 + ["full"]
    arch = parse(CONFIGS["latent with an indexer"] | {"indexer_types": kinds})
    assert token_bytes(arch).full == 61 * 1152 + 16 * 132
    assert token_bytes(arch, kv_precision="fp8").full == 61 * 656 + 16 * 132


@given(st.sampled_from(sorted(CONFIGS)), st.sampled_from([1, 2, 4, 8]))
def test_more_gpus_divide_heads_and_never_latent_vectors(name, gpus):
    arch = parse(CONFIGS[name])
    one, each = token_bytes(arch), token_bytes(arch, tensor_parallel=gpus)
    if name.startswith("latent"):
        assert each == one
    # With fewer heads than GPUs, heads are repeated.
    for alone, divided in zip(one, each, strict=True):
        assert alone / gpus <= divided <= alone


@given(st.integers(1, 100), st.integers(1, 100))
def test_bytes_grow_with_layers(fewer, more):
    config = CONFIGS["grouped-query"]
    sizes = [token_bytes(parse(config | {"num_hidden_layers": count})).full for count in (fewer, fewer + more)]
    assert sizes[0] < sizes[1]
    assert sizes[0] == fewer * 4096


@given(st.sampled_from(sorted(CONFIGS)), st.integers(1, 10**12), st.integers(0, 10**12))
def test_more_memory_never_holds_less(name, memory, more):
    caches = list(layer_caches(parse(CONFIGS[name])))
    small, large = (divide(caches, size, 8192, batch_tokens=2048) for size in (memory, memory + more))
    assert small.blocks <= large.blocks
    assert small.tokens <= large.tokens


@given(st.sampled_from(sorted(CONFIGS)), st.integers(16, 100_000))
def test_blocks_hold_at_least_what_the_tokens_take(name, length):
    """Rounding and padding add, and what is divided never exceeds the memory."""
    arch = parse(CONFIGS[name])
    caches = list(layer_caches(arch, prefix_caching=False))
    found = divide(caches, 1e12, length, batch_tokens=2048)
    assert found.blocks * found.block_bytes <= 1e12
    assert found.sequence_blocks * found.block_bytes >= context_bytes(caches, length)


def test_states_of_earlier_tokens_are_kept_for_prefix_caching():
    with_states, without = (pool(CONFIGS["Mamba-2"], prefix_caching=keep) for keep in (True, False))
    # Six layers of attention make the groups; 23 of Mamba-2 are four of them, with three states instead of one.
    assert with_states.sequence_blocks - without.sequence_blocks == 4 * 2


def test_model_that_stores_nothing_has_no_pool():
    assert divide([], 1e9, 8192, batch_tokens=2048) is None


def test_context_beyond_a_window_is_not_read():
    caches = [LayerCache(CacheKind.FULL, 10), LayerCache(CacheKind.WINDOW, 10, 100), LayerCache(CacheKind.STATE, 7)]
    assert context_bytes(caches, 50) == 10 * 50 + 10 * 50 + 7
    assert context_bytes(caches, 1000) == 10 * 1000 + 10 * 100 + 7


def test_unknown_precision_is_refused():
    with pytest.raises(UnknownArchitecture, match="must be one of float32"):
        token_bytes(parse(CONFIGS["latent"]), kv_precision="int3")


def test_config_without_a_precision_is_refused_unless_one_is_given():
    config = {key: value for key, value in CONFIGS["latent"].items() if key != "torch_dtype"}
    with pytest.raises(UnknownArchitecture, match="torch_dtype"):
        token_bytes(parse(config))
    assert token_bytes(parse(config), precision="bfloat16").full == 70_272
