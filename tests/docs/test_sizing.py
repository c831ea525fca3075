"""The page about sizing has the constants of the code, and its example has the result of the code."""

import re
from fractions import Fraction

import pytest

from scaler.policy import capacity, service_time, sizing
from scaler.policy.capacity import Estimate
from tests.docs.pages import text_of

PAGE = text_of("docs/explanation/sizing.md")
ROW = re.compile(r"^\| (`[A-Z_]+`(?:, `[A-Z_]+`)*) \| ([^|]+) \|", re.MULTILINE)
STATED = {
    name: value.strip()
    for names, values in ROW.findall(PAGE)
    for name, value in zip(re.findall("[A-Z_]+", names), values.split(","), strict=True)
}


CONSTANTS = {
    **vars(service_time),
    **vars(sizing),
    **vars(capacity),
    **{name.upper(): value for name, value in capacity.DEFAULTS._asdict().items()},
}


@pytest.mark.parametrize("name", STATED)
def test_constant_has_the_value_of_the_code(name):
    assert float(Fraction(STATED[name])) == pytest.approx(CONSTANTS[name])


def test_every_constant_in_a_sentence_has_a_value():
    assert set(
        re.findall(
            r"[ `(]([A-Z]+_[A-Z_]+|TARGET|NOISE|HEADROOM|DRIFT|LEAD|BUDGET|STRETCH|CROWDED|SLOWEST|WIDTH)[ `]", PAGE
        )
    ) == set(STATED)


def test_worked_example_has_the_result_of_the_code():
    estimates = capacity.blank(1)
    for column, value in ((Estimate.STEP_SUM, 0.010), (Estimate.STEP_WEIGHT, 1.0)):
        estimates[0, column] = value
    room, request_s = (
        capacity.room(estimates, 0, 0.05),
        capacity.request_replica_s(estimates, 0, 0.05, capacity.DEFAULTS),
    )
    work, constants = 2.0 * request_s, capacity.DEFAULTS
    spread = (work * request_s / capacity.ARRIVAL_S) ** 0.5
    headroom = ((constants.headroom * spread) ** 2 + constants.drift**2 * work) ** 0.5

    for text in (
        "10/40 = 0.75",
        "0.75 = 0.174 replicas",
        "/ 10) = 0.039",
        "0.1² × 0.174) = 0.050",
        "size 0.22: one replica",
    ):
        assert text in " ".join(PAGE.split())
    assert (round(room, 2), round(work, 3), round(spread, 3)) == (0.75, 0.174, 0.039)
    assert (round(headroom, 3), round(work + headroom, 2)) == (0.05, 0.22)
