"""What the README shows is what the product takes."""

from pathlib import Path

from scaler.board import Reason

README = Path(__file__).parents[2] / "README.md"


def test_the_readme_explains_every_reason():
    text = README.read_text(encoding="utf-8")
    assert [reason for reason in Reason if f"`{reason}`" not in text] == []
