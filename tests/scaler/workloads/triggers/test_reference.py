"""Checks that docs/reference/triggers.md is generated from the model."""

import re
import subprocess
import sys
from pathlib import Path

from scaler.config.schema import sections
from scaler.config.trigger import TRIGGER_KEYS

_DOCUMENT = Path(__file__).parents[4] / "docs/reference/triggers.md"


def test_committed_reference_equals_the_generated_one():
    generated = subprocess.run(
        [sys.executable, "-m", "docs.generate.triggers"],
        capture_output=True, check=True, cwd=_DOCUMENT.parents[1],
    )  # fmt: skip

    assert generated.stdout.decode() == _DOCUMENT.read_text(encoding="utf-8")


def test_key_has_one_entry_with_type_and_text_or_is_listed_with_its_section_of_the_configuration():
    entries = [line for line in _items() if line.startswith("- `")]
    lists = [line for line in _items() if line.startswith("- [")]
    described = [line.split("`")[1] for line in entries]
    listed = [name for line in lists for name in re.findall(r"`([a-z_.]+)`", line)]

    assert sorted(described + listed) == sorted(TRIGGER_KEYS)
    assert {line for line in entries if not re.match(r"- `[a-z_]+` \(.+?\): \S.*\.$", line)} == set()
    assert {line for line in lists if not re.match(r"- \[(\w+)\]\(configuration\.md#\w+\): `.*\.$", line)} == set()


def test_key_that_is_listed_with_a_section_has_its_default_and_its_bounds():
    models = {section.__name__: section.model_fields for section in sections()}
    listed = {
        name: models[section][name.rpartition(".")[2]]
        for section, names in re.findall(r"^- \[(\w+)\]\([^)]*\): (.*)$", "\n".join(_items()), re.MULTILINE)
        for name in re.findall(r"`([a-z_.]+)`", names)
    }
    facts = {name: (field.default, field.annotation, field.metadata) for name, field in listed.items()}
    of_triggers = {name: key.field for name, key in TRIGGER_KEYS.items() if name in listed}

    assert "keep_warm" in listed
    assert {name: (one.default, one.annotation, one.metadata) for name, one in of_triggers.items()} == facts


def test_key_of_one_origin_names_it():
    single = {name: key.origins[0] for name, key in TRIGGER_KEYS.items() if len(key.origins) == 1}

    assert dict(re.findall(r"`([a-z_.]+)` \((?:[^:;]*; )?only in (\w+)\)", "\n".join(_items()))) == single


def _items():
    """The lines of the list of keys, each unwrapped."""
    text = _DOCUMENT.read_text(encoding="utf-8").replace("\n  ", " ")
    return text.partition("\n## Keys\n")[2].splitlines()
