"""MIG profiles have slices, ceilings and shares."""

import pytest

from exporter.catalog.gpus import ceiling, share, slices
from exporter.model import Gpu


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        ("1g.5gb", 1),
        ("1g.10gb+me", 1),
        ("1g.24gb-me", 1),
        ("2g.10gb", 2),
        ("3g.40gb", 3),
        ("4g.24gb", 4),
        ("7g.80gb", 7),
        ("1c.3g.20gb", 3),
        ("MIG 3g.40gb", 3),
        ("mig-2g.20gb", 2),
        ("", None),
        (None, None),
        ("big", None),
        ("0g.5gb", None),
        ("12g.5gb", None),
    ],
)
def test_slices_of_a_profile_are_the_number_before_its_g(profile, expected):
    assert slices(profile) == expected


@pytest.mark.parametrize(
    ("profile", "top"), [("1g.5gb", 1.0), ("2g.10gb", 0.5), ("3g.20gb", 1 / 3), ("7g.40gb", 1 / 7)]
)
def test_ceiling_is_one_slice_of_the_instance(profile, top):
    assert ceiling(Gpu("g", "1", profile)) == top


def test_whole_gpu_and_an_instance_without_a_profile_have_no_ceiling():
    assert ceiling(Gpu("g")) is None
    assert ceiling(Gpu("g", "1")) is None


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [
        (Gpu("g"), 1.0),
        (Gpu("g", "1", "1g.5gb", "NVIDIA A100-SXM4-40GB"), 1 / 7),
        (Gpu("g", "1", "3g.40gb", "NVIDIA H100 80GB HBM3"), 3 / 7),
        (Gpu("g", "1", "2g.12gb", "NVIDIA A30"), 2 / 4),
        (Gpu("g", "1", "4g.96gb", "NVIDIA RTX PRO 6000 Blackwell"), 1.0),
        (Gpu("g", "1", None, "NVIDIA A100"), 1 / 7),
        (Gpu("g", "1", "9g.9gb"), 1.0),
    ],
)
def test_instance_has_its_share_of_the_gpu(gpu, expected):
    assert share(gpu) == expected
