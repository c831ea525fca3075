import pytest

from scaler.config.errors import TriggerErrors
from scaler.config.trigger import read


@pytest.fixture
def told():
    """What a tenant is told about words: each problem as its line, none if they are good."""

    def tell(words, place="metadata"):
        try:
            read(words, origin=place)
        except TriggerErrors as bad:
            return [str(problem) for problem in bad.problems]
        return []

    return tell
