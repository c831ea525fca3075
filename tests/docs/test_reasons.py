"""Every reason is explained, once, with what it answers and what to do."""

import re

from scaler.model import Decision, Reason
from tests.docs.pages import text_of

TABLE = text_of("docs/explanation/concepts.md").partition("## The reasons")[2].partition("\n## ")[0]
ROWS = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in TABLE.splitlines() if row.startswith("| `")]


def test_the_list_of_reasons_is_the_closed_list_and_each_says_what_to_do():
    assert {row[0].strip("`") for row in ROWS} == set(Reason)
    assert [row[0] for row in ROWS if len(row) != 5 or not all(row)] == []


def test_what_is_said_of_active_can_be():
    """0 replicas is inactive, any other number is active; a reason that says otherwise would raise in a Decision."""
    from exporter.model import WorkloadKey  # noqa: PLC0415

    counted = [row for row in ROWS if row[1] in {"0", "≥ 1"}]
    made = [
        Decision(WorkloadKey("ai", "chat"), 0 if replicas == "0" else 1, active == "yes", Reason(name.strip("`")), 0.0)
        for name, replicas, active, *_ in counted
    ]
    assert [decision.active for decision in made] == [replicas != "0" for _, replicas, *_ in counted]
    assert made


def test_the_words_for_people_to_look_for_are_reasons():
    text = text_of("docs/how-to/troubleshoot.md") + text_of("docs/how-to/runbooks.md")
    named = re.findall(r"[Rr]eason(?:\{reason=\")? `(\w+)`", text)

    assert named
    assert [word for word in named if word not in set(Reason)] == []
