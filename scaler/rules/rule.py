"""What a rule of `tidegate check` is: an id for good, and the sentences that go with it.

Worked example: `Rule("TG001", "no-waker", "warning", why="...", fix="...", source="...").page` is "TG001.md".
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

# error: it does not work, or contradicts itself. warning: it works and will hurt. info: a default that costs something.
Severity: TypeAlias = Literal["error", "warning", "info"]

KEDA = "https://keda.sh/docs/latest"
KUBERNETES = "https://kubernetes.io/docs"
GITHUB = "https://github.com"


class Rule(NamedTuple):
    """id: never given to another rule. name: in words, for people. why: what happens to whom. fix: what to write.
    source: where anybody can look it up: a document or a thread, or a page of these docs.
    """

    id: str
    name: str
    severity: Severity
    why: str
    fix: str
    source: str

    @property
    def page(self) -> str:
        """Its page below docs/reference/rules."""
        return f"{self.id}.md"
