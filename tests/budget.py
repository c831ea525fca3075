"""How many examples a property test draws: few in `make test`, more for as long a run as is wanted.

`TIDEGATE_EXAMPLES=20 make test` draws twenty times as many. The budgets of the tests that use this are small because
each of their examples plays a whole history.
"""

from __future__ import annotations

import os


def examples(count: int) -> int:
    return max(1, round(count * float(os.environ.get("TIDEGATE_EXAMPLES", "1"))))
