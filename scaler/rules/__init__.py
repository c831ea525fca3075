"""Every rule of `tidegate check`: ids, severities and sentences, and nothing that finds anything. Pure data.

`scaler.config` finds some of them while it reads words, `scaler.lint` the others; each has a page below
docs/reference/rules. An id is given once: a rule that is withdrawn leaves a gap.

Worked example: `RULES["TG001"].name` is "no-waker".
"""

from __future__ import annotations

from collections.abc import Mapping

from . import controllers, live, pods, signals, words, zero
from .rule import Rule, Severity

__all__ = ["RULES", "Rule", "Severity"]

RULES: Mapping[str, Rule] = {
    rule.id: rule for room in (zero, controllers, signals, pods, words, live) for rule in room.RULES
}
