"""Keys select, filter, sort, explain and end, and no key leads to a row that does not exist."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.cli.top.keys import SORTS, START, Choice, index_of, key, matching, press, split


def row(name, load=1.0, namespace="ai", **more):
    return {
        "namespace": namespace, "name": name, "trigger": "", "state": "serving", "reason": "serving", "why": "busy",
        "load": load, "published": load, "gpu": load, **more,
    }  # fmt: skip


ROWS = [row("b", 3.0), row("a", None), row("c", 7.0, "lab", state="asleep")]


def after(*keys, rows=ROWS, choice=START):
    """Presses keys one after the other, as `watch` does."""
    for each in keys:
        choice = press(choice, each, matching(rows, choice))
    return choice


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        ("", ["hang-up"]), ("jq", ["j", "q"]), ("\x1b", ["escape"]), ("\x1b[A", ["up"]),
        ("\x1bOB\x1b[B", ["down", "down"]),
        ("\r", ["enter"]), ("\x7f", ["backspace"]), ("\x1b[6~", ["page down"]), ("\x1b[15~x", ["x"]), ("é", ["é"]),
    ],
)  # fmt: skip
def test_typed_text_is_split_into_keys(typed, keys):
    assert split(typed) == keys


@pytest.mark.parametrize(
    ("keys", "name"),
    [("j", "b"), ("jj", "a"), ("jk", "b"), ("jjjjj", "c"), ("G", "c"), ("Gg", "b"), ("k", "b"), ("", None)],
)
def test_moves_stay_within_the_rows(keys, name):
    selected = after(*keys).selected
    assert (None if selected is None else selected[1]) == name


def test_sorts_have_unknown_last():
    assert [each["name"] for each in matching(ROWS, Choice(sort="requests"))] == ["c", "b", "a"]
    assert [each["name"] for each in matching(ROWS, Choice(sort="name"))] == ["a", "b", "c"]
    assert after(*"s" * (len(SORTS) + 1)) == START


def test_filter_is_of_name_state_and_reason_and_escape_clears_it():
    typed = after("/", *"aslE", "backspace", *"ee")
    assert (typed.filter, typed.typing) == ("aslee", True)
    assert [each["name"] for each in matching(ROWS, typed)] == ["c"]
    kept = after("enter", choice=typed)
    assert (kept.filter, kept.typing) == ("aslee", False)
    assert after("escape", choice=kept) == START
    assert after("/", "q").filter == "q", "while a filter is typed, q is a letter"


def test_enter_explains_the_selected_row_and_escape_returns():
    explained = after("j", "enter")
    assert (explained.page, explained.selected) == ("explain", ("ai", "b", ""))
    assert after("j", "j", "k", choice=explained).scroll == 1
    assert after("escape", choice=explained).page == "rows"
    assert after("enter").page == "rows", "nothing is selected, so the first row is"


@pytest.mark.parametrize("choice", [START, Choice(page="help"), Choice(page="explain", selected=("ai", "b", ""))])
def test_q_and_a_hang_up_end_it_on_every_page(choice):
    assert press(choice, "q", ROWS) is None
    assert press(choice, "hang-up", ROWS) is None


KEYS = st.lists(st.sampled_from([*"jkgGs?/xab ", "up", "down", "enter", "escape", "backspace", "page up", "page down"]))


@given(keys=KEYS, rows=st.sampled_from([[], ROWS[:1], ROWS]))
def test_any_keys_lead_to_a_selection_that_exists(keys, rows):
    choice = START
    for each in keys:
        changed = press(choice, each, matching(rows, choice))
        if changed is None:
            assert each == "escape"
            return
        choice = changed
        assert choice.scroll >= 0
        assert choice.selected is None or index_of(rows, choice.selected) is not None
    assert choice.selected in (None, *map(key, rows))
