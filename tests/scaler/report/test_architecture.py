"""A config.json becomes an architecture, or is refused by the key that it lacks."""

import json
import re
from pathlib import Path

import pytest

from scaler.report.architecture import parse
from scaler.report.hf_config import UnknownArchitecture
from scaler.report.layers import Attention, NoMixer

CONFIGS = json.loads((Path(__file__).parent / "configs.json").read_text())


def without(config, key):
    return {name: value for name, value in config.items() if name != key}


def test_unknown_architecture_is_refused_by_name():
    with pytest.raises(UnknownArchitecture, match=r"config\.json: model_type: must be one of .*, got 'bert'"):
        parse({"model_type": "bert", "hidden_size": 768})


def test_config_without_a_model_type_is_refused():
    with pytest.raises(UnknownArchitecture, match="model_type"):
        parse({"hidden_size": 768})


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ("grouped-query", "hidden_size"),
        ("grouped-query", "num_hidden_layers"),
        ("grouped-query", "vocab_size"),
        ("latent", "kv_lora_rank"),
        ("chunks", "interleave_moe_layer_step"),
        ("Gated DeltaNet", "linear_value_head_dim"),
        ("Mamba-2", "ssm_state_size"),
        ("shared by layers", "num_kv_shared_layers"),
        ("keys wider than values", "hybrid_layer_pattern"),
    ],
)
def test_missing_key_is_refused_and_never_guessed(config, key):
    with pytest.raises(UnknownArchitecture) as refused:
        parse(without(CONFIGS[config], key))
    assert refused.value.key == key


@pytest.mark.parametrize("value", [0, -1, 1.5, "32", True])
def test_impossible_value_is_refused_with_the_value(value):
    with pytest.raises(
        UnknownArchitecture, match=rf"num_hidden_layers: must be an integer of at least 1, got {re.escape(repr(value))}"
    ):
        parse(CONFIGS["grouped-query"] | {"num_hidden_layers": value})


def test_kind_of_layer_that_is_not_known_is_refused():
    config = CONFIGS["Gated DeltaNet"]
    kinds = [*config["layer_types"][:-1], "holographic"]
    with pytest.raises(UnknownArchitecture, match=r"layer_types: must be one of .*, got 'holographic'"):
        parse(config | {"layer_types": kinds})


def test_experts_under_other_names_are_not_taken_for_a_dense_model():
    config = without(CONFIGS["latent"], "n_routed_experts") | {"num_routed_experts": 256}
    with pytest.raises(UnknownArchitecture):
        parse(config)


def test_head_size_is_derived_only_if_it_is_an_integer():
    plain = CONFIGS["grouped-query"]
    assert parse(plain).layers[0].mixer.key_dim == 128
    with pytest.raises(UnknownArchitecture, match="head_dim"):
        parse(plain | {"num_attention_heads": 33})


def test_encoder_is_named_as_unread():
    arch = parse(CONFIGS["full layers of another size, in a section"])
    assert (arch.name, arch.unread) == ("gemma4_text", ("vision_config",))


def test_window_is_not_used_where_the_config_switches_it_off():
    config = CONFIGS["grouped-query"] | {"model_type": "qwen2", "sliding_window": 4096, "max_window_layers": 28}
    windows = {False: {None}, True: {None, 4096}}
    for use, expected in windows.items():
        layers = parse(config | {"use_sliding_window": use}).layers
        assert {layer.mixer.window for layer in layers} == expected


def test_layers_without_attention_have_no_mixer():
    mixers = [layer.mixer for layer in parse(CONFIGS["some layers without attention"]).layers]
    assert [type(mixer) for mixer in mixers] == [Attention, NoMixer, Attention, Attention]
    assert [mixer.kv_heads for mixer in mixers if isinstance(mixer, Attention)] == [8, 8, 4]


def test_config_of_a_drafting_layer_beyond_the_last_is_ignored():
    config = CONFIGS["keys wider than values"]
    longer = config | {"hybrid_layer_pattern": [*config["hybrid_layer_pattern"], 1]}
    assert parse(longer) == parse(config)


def test_window_of_mistral_is_the_usual_one_unless_the_config_says_otherwise():
    null = CONFIGS["explicit head size"]
    assert null["sliding_window"] is None
    windows = [parse(config).layers[0].mixer.window for config in (null, without(null, "sliding_window"))]
    assert windows == [None, 4096]


def test_quantisation_in_a_file_of_its_own_is_read():
    beside = {"quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head", "model.layers.0*"]}}
    found = parse(CONFIGS["grouped-query"], beside).quantization
    assert found.storage_of("layers.1.mlp.up_proj").bits_per_weight == 4.5
    assert found.storage_of("layers.0.mlp.up_proj") is found.storage_of("lm_head") is None
    with pytest.raises(UnknownArchitecture, match="quantization: must be a section"):
        parse(CONFIGS["grouped-query"], {"quant_algo": "NVFP4"})


def test_config_with_a_billion_layers_is_refused_at_once():
    with pytest.raises(UnknownArchitecture, match="num_hidden_layers: must be at most 4096, got 1000000000"):
        parse(CONFIGS["grouped-query"] | {"num_hidden_layers": 10**9})
