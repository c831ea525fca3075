"""The reference in docs/ is the model's own words."""

import subprocess
import sys
from pathlib import Path

from scaler.config.reference import reference
from scaler.config.schema import sections

_DOCUMENT = Path(__file__).parents[2] / "docs/reference/configuration.md"


def test_the_committed_reference_is_what_the_model_says():
    made = subprocess.run(
        [sys.executable, "-m", "scaler.config.reference"], capture_output=True, check=True, cwd=_DOCUMENT.parents[1]
    )

    assert made.stdout.decode() == _DOCUMENT.read_text(encoding="utf-8")


def test_every_key_has_a_row():
    rows = [line for line in reference().splitlines() if line.startswith("| `")]

    assert len(rows) == sum(len(section.model_fields) for section in sections())
    assert [row for row in rows if row.count(" | ") != 3] == []


def test_every_link_leads_to_a_section():
    text = reference()
    titles = {line[3:].lower() for line in text.splitlines() if line.startswith("## ")}
    links = {link.split(")")[0] for link in text.split("(#")[1:]}

    assert links <= titles
    assert "endpoint" in links
