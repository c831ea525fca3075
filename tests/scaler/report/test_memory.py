"""Serving memory is the sum of its parts, each part says how it is known, and what fits follows from the sum."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.report import memory
from scaler.report.architecture import parse
from scaler.report.hf_config import UnknownArchitecture

CONFIGS = json.loads((Path(__file__).parent / "configs.json").read_text())
GIB = 2**30
LLAMA = parse(CONFIGS["grouped-query"])


def test_parts_are_those_that_vllm_logged_for_llama_on_h100():
    """vLLM 0.19.0, one H100: weights 14.99, activations 1.89, non-torch 0.25, 476,016 tokens (RIGHTSIZING.md)."""
    found = memory.serving(LLAMA, gpu_bytes=79.19 * GIB, utilization=0.95, max_model_len=8192)
    assert found.weights.bytes / GIB == pytest.approx(14.99, rel=0.01)
    assert found.activations.bytes / GIB == pytest.approx(1.89, rel=0.01)
    assert found.fixed / GIB == pytest.approx(17.12, rel=0.05)
    assert found.pool.tokens == pytest.approx(476_016, rel=0.01)


def test_each_part_says_how_it_is_known():
    found = memory.serving(LLAMA, cuda_graphs=False)
    assert found.weights.basis is memory.Basis.COMPUTED
    assert found.activations.basis is found.overhead.basis is memory.Basis.FITTED
    assert found.cuda_graphs == memory.MemoryPart(0.0, memory.Basis.ABSENT)


def test_nothing_is_said_of_what_fits_without_a_gpu():
    found = memory.serving(LLAMA)
    assert (found.available, found.pool) == (None, None)


def test_model_that_does_not_fit_has_negative_room_and_no_tokens():
    found = memory.serving(LLAMA, gpu_bytes=16 * GIB)
    assert found.available < 0
    assert (found.pool.blocks, found.pool.tokens) == (0, 0)


def test_heads_that_cannot_be_divided_are_refused():
    """As vLLM does: Qwen2.5 7B has 28 heads, and 4 KV heads that 4 GPUs divide and 8 cannot."""
    qwen = parse(CONFIGS["grouped-query"] | {"num_attention_heads": 28, "num_key_value_heads": 4, "head_dim": 128})
    assert [gpus for gpus in range(1, 9) if memory.can_divide(qwen, gpus)] == [1, 2, 4]
    with pytest.raises(UnknownArchitecture, match=r"num_attention_heads: must be divisible by 8 GPUs, got \[28\]"):
        memory.serving(qwen, tensor_parallel=8)


def test_encoder_and_uncounted_weights_are_named():
    assert memory.serving(parse(CONFIGS["full layers of another size, in a section"])).unread == ("vision_config",)
    assert memory.serving(parse(CONFIGS["shared by layers"])).unread == ("per-layer embeddings and AltUp",)


def test_older_engine_takes_more_for_sampling():
    """vLLM 0.11.0 on one H100 logged 4.76 GiB."""
    found = memory.serving(LLAMA, engine=memory.VLLM_011)
    assert found.activations.bytes / GIB == pytest.approx(4.76, rel=0.01)


@given(st.sampled_from(sorted(CONFIGS)), st.integers(1, 32_768), st.integers(1, 2048))
def test_activations_grow_with_the_step(name, tokens, sequences):
    arch = parse(CONFIGS[name])
    less = memory.activation_bytes(arch, "bfloat16", 1, tokens, sequences)
    assert 0 < less <= memory.activation_bytes(arch, "bfloat16", 1, tokens + 1, sequences + 1)
