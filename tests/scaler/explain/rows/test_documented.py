"""The words of states and reasons are in the documentation as they are on the screens."""

from pathlib import Path

from scaler.explain.outcome_inputs import OutcomeCode
from scaler.explain.summary import HINDRANCES, REASONS, STATES

PAGE = (Path(__file__).parents[4] / "docs/how-to/live-page.md").read_text()


def test_every_state_is_documented_in_its_words():
    rows = [f"| {word.word} | {word.meaning} |" for word in STATES.values()]
    assert "\n".join(["| state | meaning |", "|---|---|", *rows, ""]) in PAGE


def test_every_reason_is_documented_in_its_words_in_the_order_of_trouble():
    words = sorted(REASONS.values(), key=lambda word: word.rank)
    rows = [f"| {word.word} | {word.meaning} | {word.severity} |" for word in words]
    assert "\n".join(["| reason | meaning | |", "|---|---|---|", *rows, ""]) in PAGE


def test_every_hindrance_is_documented_in_its_words_and_is_one_of_the_outlook():
    rows = [f"| {word.word} | {word.meaning} | {word.severity} |" for word in HINDRANCES.values()]
    assert "\n".join(["| hindered | meaning | |", "|---|---|---|", *rows, ""]) in PAGE
    assert set(HINDRANCES) <= set(OutcomeCode)
