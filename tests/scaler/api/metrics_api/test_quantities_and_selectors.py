"""Quantities and selectors are read as Kubernetes reads them."""

import contextlib
from decimal import ROUND_CEILING, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.utils.quantity import parse_quantity

from scaler.api.metrics_api.errors import quantity
from scaler.api.metrics_api.selectors import BadSelector, matches, parse

NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,8}[a-z0-9])?", fullmatch=True)


@given(st.decimals(0, 10_000, places=6, allow_nan=False))
def test_quantity_is_the_number_rounded_up_to_a_thousandth(value):
    expected = value.quantize(Decimal("0.001"), ROUND_CEILING)
    assert expected == parse_quantity(quantity(float(value)))


@given(st.integers(0, 10_000))
def test_whole_replicas_stay_whole(replicas):
    assert str(replicas) == quantity(replicas)


def test_rounding_error_of_a_sum_adds_no_thousandth():
    assert quantity(0.1 + 0.2) == "300m"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.001])
def test_invalid_number_has_no_quantity(value):
    with pytest.raises(ValueError, match="must be a number >= 0"):
        quantity(value)


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("", {"chat", "code", ""}),
        ("workload=chat", {"chat"}),
        ("workload == chat", {"chat"}),
        ("workload!=chat", {"code", ""}),
        ("workload in (chat, code)", {"chat", "code"}),
        ("workload in (chat),workload in (code)", set()),
        ("workload notin (chat)", {"code", ""}),
        ("workload", {"chat", "code"}),
        ("!workload", {""}),
        ("workload,workload!=code", {"chat"}),
        ("workload=", set()),
        ("team=chat", set()),
    ],
)
def test_selector_matches_as_in_kubernetes(text, chosen):
    every = {"chat": {"workload": "chat"}, "code": {"workload": "code"}, "": {}}
    assert chosen == {name for name, labels in every.items() if matches(parse(text), labels)}


@given(st.lists(NAMES, min_size=1, max_size=4), NAMES)
def test_in_and_notin_are_complements(names, name):
    listed = ",".join(names)
    labels = {"workload": name}
    chosen = [matches(parse(f"workload {word} ({listed})"), labels) for word in ("in", "notin")]
    assert [name in names, name not in names] == chosen


@pytest.mark.parametrize(
    "text", ["workload>1", "a=b=c", "in (a)", "workload in chat", "a,,b", "a b", "=", "!", "a in (b"]
)
def test_invalid_selector_is_refused(text):
    with pytest.raises(BadSelector, match="must be requirements such as"):
        parse(text)


@given(st.text(max_size=60))
def test_any_text_is_a_selector_or_refused(text):
    with contextlib.suppress(BadSelector):
        parse(text)
