from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from scaler.config import ConfigErrors, parse

HERE = Path(__file__).parent


@pytest.fixture
def said() -> Callable[[str], list[str]]:
    """What is said about a text: errors and warnings, each as its line."""

    def say(text: str) -> list[str]:
        try:
            return [str(problem) for problem in parse(dedent(text), "c.yaml")[1]]
        except ConfigErrors as errors:
            return [str(problem) for problem in errors.problems]

    return say


@pytest.fixture
def full() -> str:
    """A configuration with every key."""
    return (HERE / "full.yaml").read_text()


@pytest.fixture
def minimal() -> Path:
    return HERE / "minimal.yaml"
