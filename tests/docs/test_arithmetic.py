"""Every division in the documentation has the stated result: "40 / 16 = 2.5, so 3"."""

import re
from math import ceil

import pytest

from tests.docs.pages import PAGES, prose

NUMBER = r"\d+(?:\.\d+)?"
SUM = re.compile(rf"({NUMBER}(?: × {NUMBER})*) / ({NUMBER}) (?:=|are) ({NUMBER})(?:, so (\d+))?")


def sums(page):
    """For each division: its text, its value, the stated value, and the stated whole replicas, if any."""
    for found in SUM.finditer(" ".join(prose(page).split())):
        above = 1.0
        for factor in found[1].split(" × "):
            above *= float(factor)
        yield found[0], above / float(found[2]), found[3], found[4]


SHOWN = [pytest.param(*each, id=f"{page}: {each[0]}") for page in PAGES for each in sums(page)]


@pytest.mark.parametrize(("text", "value", "stated", "whole"), SHOWN)
def test_division_has_the_stated_result(text, value, stated, whole):
    digits = len(stated.partition(".")[2])

    assert abs(value - float(stated)) <= 0.5 * 10**-digits + 1e-9
    assert whole is None or ceil(value) == int(whole)


def test_divisions_are_found():
    assert len(SHOWN) > 5
