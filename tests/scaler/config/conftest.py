from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from scaler.config import ConfigErrors, parse

HERE = Path(__file__).parent


@pytest.fixture
def check() -> Callable[[str], list[str]]:
    """`check(text)`: the errors and warnings of a configuration, one line each."""

    def parse_and_list(text: str) -> list[str]:
        try:
            return [str(problem) for problem in parse(dedent(text), "c.yaml")[1]]
        except ConfigErrors as errors:
            return [str(problem) for problem in errors.problems]

    return parse_and_list


@pytest.fixture
def full() -> str:
    """A configuration with every key."""
    return (HERE / "full.yaml").read_text()


@pytest.fixture
def minimal() -> Path:
    return HERE / "minimal.yaml"
