"""One Board as people see it: a row for each workload, what the fleet comes to, and the words for both.

The live page, `tidegate top` and the demo's screen show these rows, so all three say the same of the same Board.
Nothing here knows a terminal, a browser or a clock.

Worked example: of a Decision "3 replicas, serving" whose pages say 30 waiting and 10 running, while the cluster was
told to run 2, `row(decision, now)` has the state `serving`, `shift` "2 → 3", the load 40.0, and the sentence
"10 requests in work, 30 waiting".
"""

from .fleet import Fleet, fleet
from .row import Ahead, Row, by_trouble, row
from .words import HINDRANCES, REASONS, STATES, Severity, State, Word, words_document

__all__ = [
    "HINDRANCES",
    "REASONS",
    "STATES",
    "Ahead",
    "Fleet",
    "Row",
    "Severity",
    "State",
    "Word",
    "by_trouble",
    "fleet",
    "row",
    "words_document",
]
