"""Pages as text, read as the daemon reads them: the real parser, then the catalog."""

from __future__ import annotations

import textwrap

import pytest

from exporter.catalog import Reader
from exporter.model import Gpu, Queue
from exporter.textformat import parse

RECEIVED_AT = 1000.0


def _page(text):
    return parse(textwrap.dedent(text).lstrip("\n").encode())


@pytest.fixture
def page():
    """Text to Page; indentation and a leading newline do not count."""
    return _page


@pytest.fixture
def read():
    """Text to Samples, received at 1000.0."""

    def read(text, kind="auto"):
        return Reader(kind).read(_page(text), RECEIVED_AT)

    return read


@pytest.fixture
def cell():
    """cell(samples, "name" or ("uuid", instance), quantity): one number; NaN where the page does not say."""

    def cell(samples, who, quantity):
        keys = [_key(subject) for subject in samples.subjects]
        assert keys.count(who) == 1, f"{who} is not one of {keys}"
        return float(samples.column(quantity)[keys.index(who)])

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
