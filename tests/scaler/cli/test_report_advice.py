"""`tidegate report --model` needs no server; each wrong option is one line that names it."""

import json

import pytest
from click.testing import CliRunner

from scaler.cli import main

LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
    "num_key_value_heads": 8, "num_hidden_layers": 32, "vocab_size": 128256, "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16", "tie_word_embeddings": False,
}  # fmt: skip
OWN_GPU = """
gpus:
  Home GPU:
    vendor: nvidia
    generation: ada
    memory_mib: [20000, its label]
"""


@pytest.fixture
def run(tmp_path):
    """`run(*options, **changes)`: the command on a config.json with these keys changed; None removes a key."""

    def command(*options, **changes):
        config = {key: value for key, value in (LLAMA | changes).items() if value is not None}
        file = tmp_path / "config.json"
        file.write_text(json.dumps(config))
        return CliRunner().invoke(main, ["report", "--model", str(file), *options])

    return command


def test_memory_of_a_model_is_printed_without_a_server(run):
    shown = run("--max-model-len", "8192")
    assert shown.exit_code == 0, shown.output
    assert "H100 80GB HBM3" in shown.output
    assert "131,072 bytes of KV cache" in shown.output


def test_own_gpus_are_added_to_the_table(run, tmp_path):
    (tmp_path / "mine.yaml").write_text(OWN_GPU)
    shown = run("--gpus", str(tmp_path / "mine.yaml"), "-o", "json")
    (section,) = json.loads(shown.output)["advice"]
    assert {"Home GPU", "H200"} <= {row[0] for row in section["rows"]}


def test_kv_cache_in_fp8_takes_half(run):
    assert "65,536 bytes of KV cache" in run("--kv-precision", "fp8").output


def test_training_memory_falls_with_the_zero_stage(run):
    """8.03 billion parameters take 16 bytes each; at stage 3 they are divided among the GPUs."""
    _, section = json.loads(run("--training-gpus", "8", "-o", "json").output)["advice"]
    totals = [float(row[4]) for row in section["rows"]]
    assert totals[0] == pytest.approx(8_030_261_248 * 16 / 2**30, abs=0.1)
    assert totals[3] == pytest.approx(totals[0] / 8, abs=0.1)
    assert totals[:4] == sorted(totals[:4], reverse=True)
    assert section["rows"][0][-1] == "H200"
    assert section["rows"][4][0] == "LoRA of rank 16, ZeRO stage 0"


def test_smallest_gpu_for_training_keeps_a_tenth_of_its_memory_free(run):
    """At stage 3, 14.96 GiB are on each of 8 GPUs. A T4 has 15."""
    memory, section = json.loads(run("--training-gpus", "8", "-o", "json").output)["advice"]
    sizes = {row[0]: float(row[1]) for row in memory["rows"]}
    (stage_3,) = (row for row in section["rows"] if row[0] == "all weights, ZeRO stage 3")
    assert (stage_3[4], stage_3[-1] != "T4") == ("15.0", True)
    assert float(stage_3[4]) <= 0.9 * sizes[stage_3[-1]]


@pytest.mark.parametrize(
    ("options", "changes", "status", "message"),
    [
        ((), {"model_type": "bert"}, 1, "config.json: model_type: must be one of"),
        ((), {"num_hidden_layers": None}, 1, "num_hidden_layers"),
        (("--tensor-parallel", "3"), {}, 1, "num_attention_heads: must be divisible by 3 GPUs"),
        (("--kv-precision", "fp3"), {}, 1, "got 'fp3'"),
        (("--gpu", "H100"), {}, 2, "--gpu: name the workloads that run on it"),
        (("ai/chat", "ai/code"), {}, 2, "--model: at most one workload, got 2"),
        (("--itl", "soon"), {}, 2, "--itl"),
        (("-o", "csv"), {}, 2, "name a workload"),
    ],
)
def test_wrong_option_is_named_in_one_line(run, options, changes, status, message):
    shown = run(*options, **changes)
    assert shown.exit_code == status, shown.output
    assert message in shown.output
    assert "Traceback" not in shown.output
    assert shown.output.strip().splitlines()[-1].startswith("Error: ")


def test_file_that_is_no_config_is_named(tmp_path):
    for text in ("", "[1]", "{" * 100_000):
        (tmp_path / "config.json").write_text(text)
        shown = CliRunner().invoke(main, ["report", "--model", str(tmp_path / "config.json")])
        assert shown.exit_code == 1
        assert "config.json: " in shown.output


def test_error_in_the_file_of_gpus_has_its_line(run, tmp_path):
    (tmp_path / "mine.yaml").write_text(OWN_GPU.replace("20000", "-1"))
    shown = run("--gpus", str(tmp_path / "mine.yaml"))
    assert shown.exit_code == 1
    assert "mine.yaml:6:" in shown.output
    assert "memory_mib" in shown.output
