"""Partitions of MIG: the published lists and counts, and the rules of placement for every model."""

import re
from collections import Counter
from itertools import combinations, product

import pytest

from scaler.report.mig import MODELS, base, complete_partitions, compositions, find, name, partitions

A100, A30 = find("A100-40GB"), find("A30")
# From the placements that the MIG user guide prints for an A100: what fits the memory slices 0 to 3, and 4 to 7.
LEFT, RIGHT = ("4", "3", "22", "211", "112", "1111"), ("3", "21", "111")
# Compute slices of the partitions that MISO (SoCC 2022) lists in partition_code.json. It leaves 4g+3g out.
MISO = "7 421 4111 33 321 3111 322 3211 3112 31111 2122 21211 21112 111211 111112 211111 121111 1111111"


def slices(model, partition):
    return "".join(sorted((str(model.profiles[each.profile].compute) for each in partition), reverse=True))


def has_double_memory(model, partition):
    return any(model.profiles[each.profile].compute < model.profiles[each.profile].memory == 2 for each in partition)


def test_partitions_of_an_a100_are_the_published_ones():
    complete = [each for each in complete_partitions(A100) if not has_double_memory(A100, each)]
    halves = ["".join(sorted(left + right, reverse=True)) for left, right in product(LEFT, RIGHT)]
    assert Counter(slices(A100, each) for each in complete) == Counter(["7", *halves])
    assert len(complete) == 19
    assert {slices(A100, each) for each in complete} == {"".join(sorted(e, reverse=True)) for e in MISO.split()} | {
        "43"
    }


def test_an_a30_has_five_complete_partitions():
    assert sorted(slices(A30, each) for each in complete_partitions(A30)) == ["1111", "211", "211", "22", "4"]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_each_valid_partition_keeps_the_rules(model):
    valid = partitions(model)
    assert len(set(valid)) == len(valid)
    for partition in valid:
        taken = [s for each in partition for s in range(each.start, each.start + model.profiles[each.profile].memory)]
        assert len(set(taken)) == len(taken)
        assert max(taken) < model.whole.memory
        assert sum(model.profiles[each.profile].compute for each in partition) <= model.whole.compute
        assert all(each.start in model.profiles[each.profile].starts for each in partition)


def test_enumeration_finds_the_same_partitions_as_brute_force():
    instances = [(index, start) for index, profile in enumerate(A30.profiles) for start in profile.starts]
    free = [
        chosen
        for size in range(1, 5)
        for chosen in combinations(instances, size)
        if max(Counter(s for i, start in chosen for s in range(start, start + A30.profiles[i].memory)).values()) == 1
    ]
    assert {frozenset(each) for each in partitions(A30)} == {frozenset(each) for each in free}


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_most_instances_of_a_profile_are_those_of_the_guide(model):
    most = [max(counts[index] for counts in compositions(model)) for index in range(len(model.profiles))]
    assert most == ([1, 2, 4] if model.name == "A30" else [1, 1, 2, 3, 4, 7])
    assert [profile.media for profile in model.profiles if base(f"{profile.name}+me") == profile.name][-1] == 1


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_profiles_are_ordered_and_named_after_their_slices_and_memory(model):
    for profile in model.profiles:
        compute, gigabytes = re.fullmatch(r"(\d)g\.(\d+)gb", profile.name).groups()
        assert int(compute) == profile.compute
        assert profile.size == pytest.approx(int(gigabytes) * 1e9, rel=0.08)
    assert [profile.sms for profile in model.profiles] == sorted((p.sms for p in model.profiles), reverse=True)


def test_no_composition_is_contained_in_another_one():
    for one, other in combinations(compositions(A100), 2):
        assert not all(a <= b for a, b in zip(one, other, strict=True))
        assert not all(a >= b for a, b in zip(one, other, strict=True))
    assert name(A100, (0, 0, 1, 2, 0, 0)) == "3g.20gb + 2 x 2g.10gb"


@pytest.mark.parametrize(("gpu", "model"), [
    ("NVIDIA A100-SXM4-40GB", "A100-40GB"),
    ("NVIDIA A100 80GB PCIe", "A100-80GB"),
    ("NVIDIA H100 80GB HBM3", "H100-80GB"),
    ("NVIDIA GH200 480GB", "H100-96GB"),
    ("NVIDIA H200", "H200"),
    ("NVIDIA B200", "B200"),
    ("NVIDIA A30", "A30"),
    ("H100-80GB", "H100-80GB"),
])  # fmt: skip
def test_model_is_found_by_the_name_that_nvml_has(gpu, model):
    assert find(gpu).name == model


@pytest.mark.parametrize("gpu", ["NVIDIA GB200", "NVIDIA H100 NVL", "Tesla T4", "NVIDIA A10", ""])
def test_gpu_that_is_not_listed_has_no_model(gpu):
    assert find(gpu) is None
