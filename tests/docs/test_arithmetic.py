"""Every division that is shown comes out as it is said: "40 / 16 = 2.5, so 3"."""

import re
from math import ceil

import pytest

from tests.docs.pages import PAGES, prose

NUMBER = r"\d+(?:\.\d+)?"
SUM = re.compile(rf"({NUMBER}(?: × {NUMBER})*) / ({NUMBER}) (?:=|are) ({NUMBER})(?:, so (\d+))?")


def sums(page):
    """Of each: its words, what it comes to, what is said, and the whole replicas that are said, if any."""
    for found in SUM.finditer(" ".join(prose(page).split())):
        above = 1.0
        for factor in found[1].split(" × "):
            above *= float(factor)
        yield found[0], above / float(found[2]), found[3], found[4]


SHOWN = [pytest.param(*each, id=f"{page}: {each[0]}") for page in PAGES for each in sums(page)]


@pytest.mark.parametrize(("words", "comes_to", "said", "whole"), SHOWN)
def test_a_division_that_is_shown_comes_out_as_it_is_said(words, comes_to, said, whole):
    digits = len(said.partition(".")[2])

    assert abs(comes_to - float(said)) <= 0.5 * 10**-digits + 1e-9
    assert whole is None or ceil(comes_to) == int(whole)


def test_divisions_are_found():
    assert len(SHOWN) > 10
