"""Training memory is that of the ZeRO paper, and adapters train few parameters beside frozen weights."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.report.architecture import parse
from scaler.report.training import ZeroStage, count_adapter_parameters, full, full_of, lora
from scaler.report.weights import weight_bytes

CONFIGS = json.loads((Path(__file__).parent / "configs.json").read_text())
LLAMA = parse(CONFIGS["multi-head"])


@pytest.mark.parametrize(("stage", "gigabytes"), [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_stages_take_what_the_paper_says(stage, gigabytes):
    """Rajbhandari et al., figure 1: 7.5 billion parameters on 64 GPUs."""
    found = full(7.5e9, gpus=64, stage=ZeroStage(stage))
    assert found.total / 1e9 == pytest.approx(gigabytes, abs=0.05)


@given(st.floats(1, 1e12), st.integers(1, 1024), st.sampled_from([0, 1, 2]))
def test_higher_stage_never_takes_more(parameters, gpus, stage):
    lower, higher = (full(parameters, gpus=gpus, stage=ZeroStage(each)).total for each in (stage, stage + 1))
    assert higher <= lower


def test_full_training_takes_sixteen_bytes_per_parameter():
    assert full_of(LLAMA).total == 6_738_415_616 * 16
    assert full_of(LLAMA, optimizer="adam8bit").optimizer == 6_738_415_616 * 6


def test_adapters_of_llama_have_the_published_number_of_parameters():
    """LoRA on Llama 2 7B, rank 8, queries and values: 4,194,304 trainable parameters."""
    assert count_adapter_parameters(LLAMA, 8, ("q_proj", "v_proj")) == 4_194_304


def test_adapters_train_beside_frozen_weights():
    found = lora(LLAMA, 8)
    assert found.weights == weight_bytes(LLAMA) + 4_194_304 * 2
    assert (found.gradients, found.optimizer) == (4_194_304 * 2, 4_194_304 * 12)


def test_frozen_weights_may_be_quantised():
    config = CONFIGS["multi-head"] | {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}
    assert lora(parse(config), 8).weights < lora(LLAMA, 8).weights / 3


def test_unknown_optimiser_is_refused():
    with pytest.raises(KeyError):
        full(1e9, optimizer="unknown")
