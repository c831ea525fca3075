"""The table of GPUs, the errors of its file, and which row a device has."""

from pathlib import Path

import pytest

from scaler.config.errors import ConfigErrors
from scaler.policy.prices import PUBLIC, PriceList
from scaler.report.gpus import PRECISIONS, Figure, figures_of, find_model, parse

FILE = Path(__file__).parents[3] / "scaler/report/gpus.yaml"
MODELS = parse(FILE.read_text(encoding="utf-8"), "gpus.yaml")


def row(text):
    return parse("sources: {doc: the datasheet}\ngpus:\n  X1:\n    vendor: v\n    generation: g\n" + text, "mine.yaml")


def errors_of(text):
    with pytest.raises(ConfigErrors) as raised:
        parse(text, "mine.yaml")
    return [str(problem) for problem in raised.value.problems]


def test_a_row_is_converted_to_si_units_and_names_its_sources():
    text = "    memory_mib: [1024, doc]\n    bandwidth_gb_per_s: [3350, a page]\n    fp8_tflops: [1.5, doc]\n"
    (model,) = row(text + "    tdp_w: [700, doc]\n    mig: [1g.10gb 7g.80gb, doc]\n").values()
    assert model.memory == Figure(1024 * 2**20, "the datasheet")
    assert model.bandwidth == Figure(3.35e12, "a page")
    assert model.throughput == {"fp8": Figure(1.5e12, "the datasheet")}
    assert model.tdp == Figure(700.0, "the datasheet")
    assert (model.mig, model.mig_source) == (("1g.10gb", "7g.80gb"), "the datasheet")


def test_a_figure_that_the_file_leaves_out_is_unknown():
    (model,) = row("").values()
    assert (model.memory, model.bandwidth, model.interconnect, model.tdp) == (None, None, None, None)
    assert model.throughput == {}
    assert model.mig == ()


def test_a_users_file_adds_models_and_replaces_rows():
    mine = parse(
        "gpus:\n  L4: {vendor: nvidia, generation: ada, memory_mib: [1, mine]}\n  X1: {vendor: v, generation: g}", "f"
    )
    merged = {**MODELS, **mine}
    assert merged["L4"].memory == Figure(2.0**20, "mine")
    assert merged.keys() == MODELS.keys() | {"X1"}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("tdp_w: [-1, doc]", "5:13: gpus.X1.tdp_w: must be a number above 0 and at most 100000, got -1"),
        ("fp8_tflops: [2e7, doc]", "5:18: gpus.X1.fp8_tflops: must be a number above 0 and at most 1e+06, got 2e7"),
        ("memory_mib: [much, doc]", "5:18: gpus.X1.memory_mib: must be a number above 0 and at most 1e+08, got much"),
        ("tdp_w: 700", "5:12: gpus.X1.tdp_w: must be [value, source], got 700"),
        ("tdp_w: [700, 5]", "5:12: gpus.X1.tdp_w: must be text, got 5"),
        ("mig: [9g.1gb, doc]", "5:11: gpus.X1.mig: must be names of profiles such as 1g.10gb, got 9g.1gb"),
        ("mig: 3", "5:10: gpus.X1.mig: must be [value, source], got 3"),
        ("vendor: {}", "5:13: gpus.X1.vendor: must be text, got a mapping"),
    ],
)  # fmt: skip
def test_an_error_names_file_row_key_bound_and_value(text, error):
    head = "sources: {doc: the datasheet}\ngpus:\n  X1:\n    generation: g\n    "
    vendor = "" if text.startswith("vendor") else "\n    vendor: v"
    assert errors_of(head + text + vendor) == [f"mine.yaml:{error}"]


def test_all_problems_of_a_file_are_reported_in_its_order():
    found = errors_of("gpus:\n  X1: {vendor: v, watts: [1, a]}\n  '-': {vendor: v, generation: g}\nrows: 1\n")
    assert [each.split(": must")[0] for each in found] == [
        "mine.yaml:2:7: gpus.X1", "mine.yaml:2:26: gpus.X1.watts", "mine.yaml:3:8: gpus.-", "mine.yaml:4:7: rows",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["", "gpus: {}", "- 1", "gpus: [", "gpus: {A: &x {vendor: v, generation: g}}"])
def test_a_file_without_rows_or_with_broken_yaml_is_rejected(text):
    assert all(error.startswith("mine.yaml") for error in errors_of(text))


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "H100 80GB HBM3"),
        ("NVIDIA-H100-80GB-HBM3-SHARED", "H100 80GB HBM3"),
        ("NVIDIA A100-SXM4-80GB", "A100 SXM4 80GB"),
        ("NVIDIA A100 80GB PCIe", "A100 PCIe 80GB"),
        ("NVIDIA A100-PCIE-40GB", "A100 PCIE 40GB"),
        ("Tesla V100-SXM2-16GB", "V100 SXM2 16GB"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA H200 NVL", "H200 NVL"),
        ("NVIDIA B300 SXM6 AC", "B300"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("AMD Instinct MI300X OAM", "AMD MI300X"),
        ("NVIDIA L40", None),
        ("NVIDIA H100", None),
        (None, None),
    ],
)
def test_a_device_has_the_row_with_most_of_its_words(device, name):
    model = find_model(MODELS, device)
    assert (None if model is None else model.name) == name


def test_every_gpu_with_a_public_price_is_in_the_table():
    # `NVIDIA A100 SXM4 40GB` and its like: the rows have the price that belongs to them.
    for price in PUBLIC:
        model = find_model(MODELS, price.gpu)
        assert model is not None, price.gpu
        assert PriceList().hour(model.name) == price.hour


@pytest.mark.parametrize("name", MODELS)
def test_every_row_has_memory_bandwidth_and_a_source_for_each_figure(name):
    model = MODELS[name]
    assert model.memory is not None
    assert model.bandwidth is not None
    assert model.vendor in {"nvidia", "amd"}
    for key, figure in figures_of(model):
        assert figure.value > 0.0, key
        assert len(figure.source) > 10, key  # a key of `sources` that is missing would stay as it is
    assert (model.mig_source is not None) == bool(model.mig)


@pytest.mark.parametrize("name", MODELS)
def test_throughput_is_dense(name):
    # Halving the bits doubles dense throughput at most, up to rounding; with sparsity it is twice as high again.
    # INT8 of the RTX 4090 and 5090 is 4 * BF16: their BF16 and FP8 accumulate in FP32 at half the rate.
    peak = {precision: figure.value for precision, figure in MODELS[name].throughput.items()}
    assert list(peak) == [precision for precision in PRECISIONS if precision in peak]
    slow = 2.0 if name in {"RTX 4090", "RTX 5090"} else 1.0
    for wide, narrow, most in (("tf32", "bf16", 2.03), ("bf16", "fp8", 2.03), ("bf16", "int8", 2.03 * slow)):
        if {wide, narrow} <= peak.keys():
            assert peak[narrow] <= most * peak[wide], (wide, narrow)
    if {"fp8", "fp4"} <= peak.keys():  # Blackwell Ultra and the RTX cards have more FP4 units
        assert peak["fp4"] <= 4.01 * peak["fp8"]
    if {"fp32", "bf16"} <= peak.keys():
        assert peak["fp32"] <= peak["bf16"]


@pytest.mark.parametrize(
    ("name", "precision", "sparse"),
    [
        ("H100 80GB HBM3", "bf16", 1979e12), ("H100 80GB HBM3", "fp8", 3958e12), ("H100 NVL", "fp8", 3341e12),
        ("H200", "fp8", 3958e12), ("A100 SXM4 80GB", "bf16", 624e12), ("L4", "fp8", 485e12),
        ("L40S", "fp8", 1466e12), ("B200", "fp8", 9e15), ("GB200", "fp8", 10e15), ("RTX 6000 Ada", "fp8", 1457e12),
    ],
)  # fmt: skip
def test_throughput_is_half_of_the_number_with_sparsity(name, precision, sparse):
    assert MODELS[name].throughput[precision].value == pytest.approx(sparse / 2)


@pytest.mark.parametrize("name", MODELS)
def test_usable_memory_is_at_most_the_size_in_the_name_of_a_whole_mig_profile_and_a_tenth(name):
    model = MODELS[name]
    if model.mig:
        whole = int(model.mig[-1].split(".")[1].removesuffix("gb"))
        assert 0.9 < model.memory.value / (whole * 2**30) < 1.1
