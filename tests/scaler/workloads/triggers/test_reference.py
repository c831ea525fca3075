"""docs/reference/triggers.md is what the model generates."""

import re
import subprocess
import sys
from pathlib import Path

from scaler.config.trigger import TRIGGER_KEYS

_DOCUMENT = Path(__file__).parents[4] / "docs/reference/triggers.md"


def test_the_committed_reference_is_what_the_model_says():
    made = subprocess.run(
        [sys.executable, "-m", "docs.generate.triggers"],
        capture_output=True, check=True, cwd=_DOCUMENT.parents[1],
    )  # fmt: skip

    assert made.stdout.decode() == _DOCUMENT.read_text(encoding="utf-8")


def test_every_key_has_one_item_with_its_type_and_its_default():
    text = _DOCUMENT.read_text(encoding="utf-8").replace("\n  ", " ")
    items = [line for line in text.splitlines() if line.startswith("- `")]

    assert [item.split("`")[1] for item in items] == list(TRIGGER_KEYS)
    assert [item for item in items if not re.match(r"- `[a-z_.]+` \(.+; default `.+`.*\): \S.*\.$", item)] == []


def test_a_key_of_one_place_names_it():
    text = _DOCUMENT.read_text(encoding="utf-8").replace("\n  ", " ")
    single = {name: word.origins[0] for name, word in TRIGGER_KEYS.items() if len(word.origins) == 1}

    assert dict(re.findall(r"^- `([a-z_.]+)` \([^:]*; only in (\w+)\):", text, re.MULTILINE)) == single
