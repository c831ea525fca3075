"""A price list finds the price of a GPU by the words of its model. A model that is not listed has no price, never 0."""

from math import isnan

import pytest

from scaler.policy.prices import PUBLIC, PriceList, name_parts

DCGM, LABEL = "NVIDIA H100 80GB HBM3", "NVIDIA-H100-80GB-HBM3-SHARED"


@pytest.mark.parametrize("model", [DCGM, LABEL])
def test_configured_model_wins_over_configured_gpu_hour_and_public_price(model):
    assert PriceList({"H100": 3.9}, gpu_hour=2.0).hour(model) == 3.9
    assert PriceList({"A100": 3.9}, gpu_hour=2.0).hour(model) == 2.0
    assert PriceList({"A100": 3.9}).hour(model) == 6.88


def test_price_with_most_words_wins():
    prices = PriceList({"A100": 1.0, "A100 80GB": 2.0, "80GB": 3.0})
    assert prices.hour("NVIDIA A100-SXM4-80GB") == 2.0
    assert prices.hour("NVIDIA A100-SXM4-40GB") == 1.0


@pytest.mark.parametrize("model", [None, "", "AMD Instinct MI300X", "NVIDIA L40", "NVIDIA GB200"])
def test_unlisted_model_has_no_price(model):
    assert isnan(PriceList({"H100": 3.9, "nvidia": 9.0}).hour(model))


@pytest.mark.parametrize(
    ("model", "hour"),
    [
        ("NVIDIA A100-SXM4-40GB", 2.74),
        ("NVIDIA A100-SXM4-80GB-MIG-1g.10gb", 3.43),
        ("NVIDIA A100 80GB PCIe", 3.67),
        ("NVIDIA L4", 0.80),
        ("NVIDIA L40S", 2.62),
    ],
)
def test_names_of_dcgm_and_of_node_labels_have_their_public_price(model, hour):
    assert PriceList().hour(model) == hour


def test_each_public_price_names_its_model_region_and_date():
    assert len({name_parts(price.gpu) for price in PUBLIC}) == len(PUBLIC)
    for price in PUBLIC:
        assert price.hour > 0.0
        assert price.source.count(", ") == 2, price.source
