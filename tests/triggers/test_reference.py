"""The reference of the words in docs/ is the model's own."""

import subprocess
import sys
from pathlib import Path

from scaler.config.trigger import WORDS

_DOCUMENT = Path(__file__).parents[2] / "docs/reference/triggers.md"


def test_the_committed_reference_is_what_the_model_says():
    made = subprocess.run(
        [sys.executable, "-m", "scaler.config.words_reference"],
        capture_output=True, check=True, cwd=_DOCUMENT.parents[1],
    )  # fmt: skip

    assert made.stdout.decode() == _DOCUMENT.read_text(encoding="utf-8")


def test_every_word_has_one_row():
    rows = [line for line in _DOCUMENT.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]

    assert [row.split("`")[1] for row in rows] == list(WORDS)
    assert [row for row in rows if row.count(" | ") != 4] == []
