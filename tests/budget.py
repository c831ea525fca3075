"""Sets how many examples a property test draws: few in `make test`, more in a long run.

`TIDEGATE_EXAMPLES=20 make test` draws twenty times as many. The tests that use this have small budgets because each
of their examples runs a whole history.
"""

from __future__ import annotations

import os


def examples(count: int) -> int:
    return max(1, round(count * float(os.environ.get("TIDEGATE_EXAMPLES", "1"))))
