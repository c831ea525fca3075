"""Where GPU-seconds go: what replicas do at a moment (`states`), and the books of it (`books`). Pure.

Worked example: `Accounts(10, gap_s=15.0)` are the books of ten workloads; a sweep of the decider enters each second.
"""

from __future__ import annotations

from .books import Books, Moment, Sums
from .seen import Answers, look
from .states import STATES, Circumstances, State

__all__ = ["STATES", "Answers", "Books", "Circumstances", "Moment", "State", "Sums", "look"]
