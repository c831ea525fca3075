"""One thing that was looked at, and what came of it. Pure.

Worked example: `fail("port 8080", "taken by another program", "stop it, or change listen.http")` is shown as a line of
that, and makes the command end with status 1.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Check:
    """name: what was looked at. said: what is so. do: what to do about it; "" where there is nothing to do.

    warn: Tidegate works, and not as well as it might. fail: something of the configuration does not.
    """

    name: str
    status: Status
    said: str
    do: str = ""

    def to_document(self) -> dict[str, str]:
        return asdict(self)


def ok(name: str, said: str) -> Check:
    return Check(name, "ok", said)


def warn(name: str, said: str, do: str) -> Check:
    return Check(name, "warn", said, do)


def fail(name: str, said: str, do: str) -> Check:
    return Check(name, "fail", said, do)
