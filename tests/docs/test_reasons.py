"""Every reason is documented once, with its effect and what to do."""

import re

from scaler.model import Decision, Reason
from tests.docs.pages import text_of

TABLE = text_of("docs/explanation/concepts.md").partition("## The reasons")[2].partition("\n## ")[0]
ROWS = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in TABLE.splitlines() if row.startswith("| `")]


def test_every_reason_is_listed_with_what_to_do():
    assert {row[0].strip("`") for row in ROWS} == set(Reason)
    assert [row[0] for row in ROWS if len(row) != 5 or not all(row)] == []


def test_documented_activity_is_possible():
    """0 replicas is inactive, any other number is active; a Decision with another combination raises."""
    from exporter.model import WorkloadKey  # noqa: PLC0415

    counted = [row for row in ROWS if row[1] in {"0", "≥ 1"}]
    decisions = [
        Decision(WorkloadKey("ai", "chat"), 0 if replicas == "0" else 1, active == "yes", Reason(name.strip("`")), 0.0)
        for name, replicas, active, *_ in counted
    ]
    assert [decision.active for decision in decisions] == [replicas != "0" for _, replicas, *_ in counted]
    assert decisions


def test_reason_codes_in_the_text_exist():
    text = text_of("docs/how-to/troubleshoot.md") + text_of("docs/how-to/runbooks.md")
    named = re.findall(r"[Rr]eason(?:\{reason=\")? `(\w+)`", text)

    assert named
    assert [word for word in named if word not in set(Reason)] == []
