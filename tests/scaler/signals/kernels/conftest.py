"""Rings for the tests of kernels: filled by `Windows.push`, as the daemon fills them."""

from __future__ import annotations

import numpy as np
import pytest

from scaler.signals.smoothing import Windows


def _rings(*series, length=16):
    """(times, values, head) with one row per series, each a list of (time, value) in order."""
    windows = Windows(len(series), length)
    for row, samples in enumerate(series):
        for at, value in samples:
            windows.push(np.array([row]), np.array([float(at)]), np.array([float(value)]))
    return windows.times, windows.values, windows.head


@pytest.fixture(scope="session")
def rings():
    return _rings


@pytest.fixture(scope="session")
def row():
    """A parameter for a table of one row."""
    return lambda value: np.array([float(value)])
