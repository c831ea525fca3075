"""Compares pages that different readers return."""

import numpy as np
import pytest

from exporter.textformat import Page
from exporter.textformat.parser import read_series


def series(layout):
    return [layout.read(index) for index in range(len(layout))]


def assert_same_page(expected: Page, actual: Page) -> None:
    assert expected.layout.heads == actual.layout.heads
    assert expected.layout.names == actual.layout.names
    assert expected.layout.types == actual.layout.types
    assert series(expected.layout) == series(actual.layout) == [read_series(head) for head in actual.layout.heads]
    assert expected.lines.tolist() == actual.lines.tolist()
    assert expected.dropped == actual.dropped
    assert expected.dropped_total == actual.dropped_total
    assert expected.broken == actual.broken
    assert expected.conflicts == actual.conflicts
    # As integers: 0.0 and -0.0 differ. A NaN's sign carries nothing.
    for one, other in ((expected.values, actual.values), (expected.at, actual.at)):
        assert np.isnan(one).tolist() == np.isnan(other).tolist()
        is_number = ~np.isnan(one)
        assert one[is_number].view(np.int64).tolist() == other[is_number].view(np.int64).tolist()


@pytest.fixture(scope="session")
def same_page():
    """`same_page(expected, actual)` asserts that two pages are equal, with values equal to the bit."""
    return assert_same_page
