"""Reads responses as the daemon does: the real parser, then the catalog."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

from exporter.catalog import Reader, selection
from exporter.model import Gpu, Queue
from exporter.textformat import PlainScanner, parse

RECEIVED_AT = 1000.0


def _page(text):
    return parse(textwrap.dedent(text).lstrip("\n").encode())


@pytest.fixture
def page():
    """`page(text)`: the Page; indentation and a leading newline are removed."""
    return _page


@pytest.fixture
def read():
    """`read(text, kind)`: the Samples, received at 1000.0. Checks that the daemon's line selection changes nothing."""

    def read(text, kind="auto"):
        samples = Reader(kind).read(_page(text), RECEIVED_AT)
        body = textwrap.dedent(text).lstrip("\n").encode()
        selected = Reader(kind).read(PlainScanner(selection()).scan(body), RECEIVED_AT)
        assert (samples.kind, samples.quantities) == (selected.kind, selected.quantities)
        assert repr(samples.subjects) == repr(selected.subjects)  # parts may be NaN
        assert np.array_equal(samples.values, selected.values, equal_nan=True)
        assert np.array_equal(samples.at, selected.at)
        assert set(selected.dropped) <= set(samples.dropped)
        return samples

    return read


@pytest.fixture
def cell():
    """cell(samples, "name" or ("uuid", instance), quantity): one number; NaN if it is unknown."""

    def cell(samples, key, quantity):
        keys = [_key(subject) for subject in samples.subjects]
        assert keys.count(key) == 1, f"{key} is not one of {keys}"
        return float(samples.column(quantity)[keys.index(key)])

    return cell


@pytest.fixture
def gpu():
    """gpu(samples, "uuid", instance=None): the subject of a GPU."""

    def gpu(samples, uuid, instance=None):
        found = [s for s in samples.subjects if isinstance(s, Gpu) and (s.uuid, s.instance) == (uuid, instance)]
        assert len(found) == 1
        return found[0]

    return gpu


def _key(subject):
    if isinstance(subject, Queue):
        return subject.name
    return subject.uuid if subject.instance is None else (subject.uuid, subject.instance)
