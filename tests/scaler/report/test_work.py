"""The bytes and operations of a decode step and a prefill."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.report.work import GpuSplit, ModelShape, StepLoad, decode_work, prefill_work

DENSE = ModelShape(70e9, 0.0, 1, 1, 1.0, 163_840.0)
EXPERTS = ModelShape(10e9, 640e9, 256, 8, 1.0, 35_136.0, kv_is_split=False)
LOADS = st.builds(StepLoad, st.integers(1, 512), st.integers(1, 32_000), st.integers(1, 8_000))


def test_a_decode_step_reads_the_weights_once_and_the_cache_of_every_request():
    work = decode_work(DENSE, StepLoad(8, 1500, 1000), GpuSplit(tensor=2))
    assert work.bytes == 35e9 + 163_840 * 2000 * 8 / 2  # the worked example of the module
    assert work.flops == pytest.approx(1.4e12)


def test_one_token_reads_its_own_experts_and_many_tokens_read_all():
    one = decode_work(EXPERTS, StepLoad(1, 1, 2), GpuSplit())
    assert one.bytes == pytest.approx(10e9 + 640e9 * 8 / 256, rel=1e-4)
    many = decode_work(EXPERTS._replace(kv_bytes=0.0), StepLoad(10_000, 1, 1), GpuSplit())
    assert many.bytes == pytest.approx(650e9)


def test_latent_attention_keeps_the_whole_cache_on_each_gpu_of_a_tensor_parallel_group():
    # 8 requests, 1000 + 1000 / 2 tokens of context: on 4 GPUs of one group each holds all of it, of two groups half.
    cache = 35_136 * 1500 * 8
    for split, held in ((GpuSplit(4, 1), cache), (GpuSplit(2, 2), cache / 2)):
        with_cache = decode_work(EXPERTS, StepLoad(8, 1000, 1000), split)
        without = decode_work(EXPERTS._replace(kv_bytes=0.0), StepLoad(8, 1000, 1000), split)
        assert with_cache.bytes - without.bytes == pytest.approx(held)


def test_a_prefill_computes_every_prompt_token_of_the_batch():
    assert prefill_work(DENSE, StepLoad(4, 1000, 10), GpuSplit(tensor=2)).flops == 2 * 70e9 * 4 * 1000 / 2


@given(LOADS, st.sampled_from([DENSE, EXPERTS]))
def test_more_requests_never_need_less_work(load, model):
    more = load._replace(batch=load.batch + 1)
    for count in (decode_work, prefill_work):
        smaller, larger = count(model, load, GpuSplit(2)), count(model, more, GpuSplit(2))
        assert larger.bytes >= smaller.bytes > 0.0
        assert larger.flops > smaller.flops > 0.0


@given(LOADS, st.sampled_from([DENSE, EXPERTS]))
def test_more_gpus_never_do_more_work_each(load, model):
    one, two = (decode_work(model, load, GpuSplit(gpus)) for gpus in (1, 2))
    assert two.bytes <= one.bytes
    assert two.flops <= one.flops
