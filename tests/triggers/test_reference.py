"""The reference of the words in docs/ is the model's own, and its examples are good ones."""

import re
import subprocess
import sys
from pathlib import Path

from scaler.config import parse
from scaler.config.manifests import check_manifests, is_manifest
from scaler.config.trigger import WORDS

_DOCUMENT = Path(__file__).parents[2] / "docs" / "triggers.md"
_EXAMPLES = re.findall(r"```yaml\n(.*?)```", _DOCUMENT.read_text(encoding="utf-8"), flags=re.DOTALL)


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


def test_every_example_is_a_good_one():
    (config,) = (parse(text, "triggers.md")[0] for text in _EXAMPLES if not is_manifest(text))
    manifests = [text for text in _EXAMPLES if is_manifest(text)]

    assert len(manifests) == 3
    assert [check_manifests(text, "triggers.md", config).problems for text in manifests] == [[], [], []]
