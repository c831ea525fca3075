"""Paths, helpers for rendered objects, and the skip for missing tools."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "chart"
# Takes a tenth of the time of the parser in Python, which is all that a PyYAML without libyaml has.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
REQUIRE_TOOLS = "TIDEGATE_REQUIRE_TOOLS"  # as in tests/conftest.py


def module(name, distribution):
    """A Python module that only these tests need. If tools are required, it must be installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        reason = f"{distribution} is not installed (pip install {distribution})"
        if os.environ.get(REQUIRE_TOOLS) == "1":
            pytest.fail(f"{reason}, and {REQUIRE_TOOLS}=1 asks for it")
        pytest.skip(reason)


def objects(text):
    return [each for each in yaml.load_all(text, LOADER) if each]


def the(things, kind, name=None):
    """The only object of that kind (and name)."""
    (one,) = [each for each in things if each["kind"] == kind and name in (None, each["metadata"]["name"])]
    return one


def ci_values():
    """Name and values of each file of deploy/chart/ci."""
    return [
        pytest.param(yaml.load(file.read_text(encoding="utf-8"), LOADER), id=file.name.removesuffix("-values.yaml"))
        for file in sorted((CHART / "ci").glob("*-values.yaml"))
    ]
