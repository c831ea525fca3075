"""The documentation of the live page names every state, reason and obstacle with its severity."""

from pathlib import Path

from scaler.explain.outcome_inputs import OutcomeCode
from scaler.explain.summary import OBSTACLES, REASONS, STATES

PAGE = (Path(__file__).parents[4] / "docs/how-to/live-page.md").read_text()


def by_severity(words):
    """`problem: unknown, held`: one row of the table for each severity, in the order of the words."""
    rows: dict[str, list[str]] = {}
    for severity, word in words:
        rows.setdefault(severity, []).append(word)
    return [f"| {severity} | {', '.join(found)} |" for severity, found in rows.items()]


def test_every_state_is_documented_in_its_words():
    rows = [f"| {word.word} | {word.meaning} |" for word in STATES.values()]
    assert "\n".join(["| state | meaning |", "|---|---|", *rows, ""]) in PAGE


def test_every_reason_is_documented_by_severity():
    words = sorted(REASONS.values(), key=lambda word: word.rank)
    rows = by_severity((word.severity, word.word) for word in words)
    assert "\n".join(["| severity | reasons |", "|---|---|", *rows, ""]) in PAGE


def test_every_obstacle_is_documented_with_its_code_and_is_an_outcome():
    rows = by_severity((word.severity, f"{word.word} (`{code}`)") for code, word in OBSTACLES.items())
    assert "\n".join(["| severity | second word (code) |", "|---|---|", *rows, ""]) in PAGE
    assert set(OBSTACLES) <= set(OutcomeCode)
