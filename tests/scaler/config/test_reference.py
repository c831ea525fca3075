"""Checks that docs/reference/configuration.md is generated from the model."""

import re
import subprocess
import sys
from pathlib import Path

from docs.generate.configuration import reference
from scaler.config.pydantic_errors import sections_in
from scaler.config.schema import is_section, sections

_DOCUMENT = Path(__file__).parents[3] / "docs/reference/configuration.md"


def test_committed_reference_equals_the_generated_one():
    generated = subprocess.run(
        [sys.executable, "-m", "docs.generate.configuration"], capture_output=True, check=True, cwd=_DOCUMENT.parents[1]
    )

    assert generated.stdout.decode() == _DOCUMENT.read_text(encoding="utf-8")


def test_every_key_has_one_entry_with_type_default_and_text():
    items = [line for line in reference().replace("\n  ", " ").splitlines() if line.startswith("- `")]
    forms = [
        rf"- `{key}` \([^)]+\(#\w+\)\)(?:: \S.*\.)?$" if is_section(field) else _form(key, field)
        for section in sections()
        for key, field in section.model_fields.items()
    ]

    assert len(items) == len(forms)
    assert [item for item, form in zip(items, forms, strict=True) if not re.match(form, item)] == []


def _form(key, field):
    """Empty lists, and null of other keys than sections and lists, are at the head of the page."""
    links = any(sections_in(field.annotation))  # the section may say the same
    text = r"\)(?:: \S.*\.)?$" if links else r"\): \S.*\.$"
    if field.is_required():
        return rf"- `{key}` \((?:(?!; ).)+; required{text}"
    if field.default == ():
        return rf"- `{key}` \(list of (?:(?!; |\): ).)+{text}"
    is_list = "list" in str(field.annotation) or "tuple" in str(field.annotation)
    is_plain_null = field.default is None and not is_list and not links
    return rf"- `{key}{'' if is_plain_null else ': [^`]+'}` \((?:(?!; |\): ).)+{text}"


def test_text_of_a_section_that_the_section_repeats_is_left_to_it():
    text = reference()

    assert "- `smoothing` ([Smoothing](#smoothing))\n" in text
    assert "\n## Smoothing\n\nHalf-lives of demand. " in text


def test_every_link_leads_to_a_section():
    text = reference()
    titles = {line[3:].lower() for line in text.splitlines() if line.startswith("## ")}
    links = {link.split(")")[0] for link in text.split("(#")[1:]}

    assert links <= titles
    assert "endpoint" in links
