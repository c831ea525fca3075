"""The page about estimators has the constants of the error budget, and its example has the result of the code."""

import numpy as np

from scaler.policy.estimators.error_budget import BUDGET, PARTS, SAMPLES, ErrorBudget
from scaler.policy.estimators.keep_warm import Stakes, break_even
from tests.docs.pages import text_of

PAGE = " ".join(text_of("docs/explanation/estimators.md").split())


def test_page_has_the_constants_of_the_error_budget():
    for text in (
        f"{100 * BUDGET:g} % of the requests",
        f"adds {BUDGET}",
        f"last {SAMPLES:g} pauses",
        f"({PARTS} parts",
    ):
        assert text in PAGE


def test_example_of_the_error_budget_has_the_result_of_the_code():
    budget, start, at = ErrorBudget(1), np.array([75.0]), 1000.0
    budget.samples[:], budget.means[:] = 1.0, 50.0
    shown = []
    for account in (230.0, -1.0):
        budget.account[0] = account
        clients = budget.price(np.array([False]), start, at)
        shown.append((clients[0], break_even(Stakes(start, start, np.array([2.5]), 30.0 * clients))[0]))

    assert [(clients, round(seconds / 60)) for clients, seconds in shown] == [(1.0, 16), (32.0, 481)]
    for text in ("break-even for 75 s is 16 min", "In debt it is 8 h"):
        assert text in PAGE
