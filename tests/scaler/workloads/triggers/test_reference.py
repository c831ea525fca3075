"""Checks that docs/reference/triggers.md is generated from the model."""

import re
import subprocess
import sys
from pathlib import Path

from scaler.config.trigger import TRIGGER_KEYS

_DOCUMENT = Path(__file__).parents[4] / "docs/reference/triggers.md"


def test_committed_reference_equals_the_generated_one():
    generated = subprocess.run(
        [sys.executable, "-m", "docs.generate.triggers"],
        capture_output=True, check=True, cwd=_DOCUMENT.parents[1],
    )  # fmt: skip

    assert generated.stdout.decode() == _DOCUMENT.read_text(encoding="utf-8")


def test_every_key_has_one_entry_with_type_and_default():
    text = _DOCUMENT.read_text(encoding="utf-8").replace("\n  ", " ")
    items = [line for line in text.splitlines() if line.startswith("- `")]

    assert [item.split("`")[1] for item in items] == list(TRIGGER_KEYS)
    fields = [key.field for key in TRIGGER_KEYS.values()]
    defaults = ["" if one.is_required() or one.default is None else "; default `[^`]+`" for one in fields]
    forms = [rf"- `[a-z_.]+` \((?:(?!; |\): ).)+{default}(?:; only in \w+)?\): \S.*\.$" for default in defaults]
    assert [item for item, form in zip(items, forms, strict=True) if not re.match(form, item)] == []


def test_key_of_one_origin_names_it():
    text = _DOCUMENT.read_text(encoding="utf-8").replace("\n  ", " ")
    single = {name: key.origins[0] for name, key in TRIGGER_KEYS.items() if len(key.origins) == 1}

    assert dict(re.findall(r"^- `([a-z_.]+)` \([^:]*; only in (\w+)\):", text, re.MULTILINE)) == single
