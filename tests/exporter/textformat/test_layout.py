"""A layout finds the series of other families that have given labels, within a limit of series that it looks at."""

import pytest

from exporter.textformat import parse

RESPONSE = b"""\
vllm:waiting{model_name="m",engine="0"} 1
vllm:running{engine="1",model_name="m"} 2
vllm:running{engine="10"} 3
up 1
vllm:tokens {engine="2"} 4
vllm:tokens{engine="0"} 5
"""
ENGINE_0, ENGINE_1, ENGINE_2, MODEL = b'engine="0"', b'engine="1"', b'engine="2"', b'model_name="m"'
ENOUGH = 10


@pytest.fixture(scope="module")
def layout():
    return parse(RESPONSE).layout


@pytest.mark.parametrize(
    ("family", "pairs", "found"),
    [
        ("vllm:running", [ENGINE_0, MODEL], (True, 1)),  # in any order
        ("vllm:waiting", [ENGINE_0, MODEL], (False, 2)),  # its own, and another model's; the longest pair is looked for
        ("vllm:running", [ENGINE_1, MODEL], (False, 2)),
        ("vllm:running", [ENGINE_1], (False, 1)),  # engine="10" is another one
        ("vllm:waiting", [ENGINE_2], (True, 1)),  # a blank after the name
        ("vllm:tokens", [ENGINE_2], (False, 1)),
        ("vllm:tokens", [ENGINE_0], (True, 1)),
        ("vllm:running", [b'engine="3"'], (False, 0)),
    ],
)
def test_series_of_another_family_with_all_labels_is_found(layout, family, pairs, found):
    assert layout.carries(family, pairs, ENOUGH) == found


def test_last_series_of_a_response_is_looked_at_too():
    layout = parse(b'a{b="c"} 1\nb{c="d"} 2\n').layout
    assert layout.carries("a", [b'c="d"'], ENOUGH) == (True, 1)
    assert layout.carries("b", [b'c="d"'], ENOUGH) == (False, 1)


def test_labels_that_many_series_have_count_as_found(layout):
    many = parse(b"".join(b'a{b="c",d="%d"} 1\n' % number for number in range(9))).layout
    assert many.carries("a", [b'b="c"'], 9) == (False, 9)
    assert many.carries("a", [b'b="c"'], 8) == (True, 9)
