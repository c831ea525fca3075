"""Checks liveness (decisions are made and calls are answered) and readiness (answers can be given).

Readiness never drops because data is stale: followers, fallbacks and the metrics API's registration all need a process
that reports it. Only warm-up and drain end it.
"""

from __future__ import annotations

from dataclasses import dataclass

# A tick is 1 s by default; one that takes ten times that is stuck.
STUCK_TICKS = 10.0
# Compiling without a cache took 25 s on two slow cores; a start may take several times that.
START_S = 120.0
# Checks of the gRPC server without an answer. A stall of the event loop causes one.
STUCK_CHECKS = 2
WAITS_FOR_LEADER = "waiting for the leader"
UNLISTED = "the cluster's ScaledObjects have not been listed yet"


@dataclass(slots=True)
class HealthState:
    """The state of the daemon. Times are POSIX seconds of its clock.

    unlisted:  it waits a moment for the first list of ScaledObjects, without which every caller is refused.
    hears_out: before its first answer it waits a moment for the leader's Board.
    role:      in leader election; None with one replica.
    misses:    checks of the gRPC server in a row without an answer.
    """

    tick_s: float
    started_at: float
    last_tick_at: float | None = None
    draining: bool = False
    unlisted: bool = False
    hears_out: bool = False
    role: str | None = None
    misses: int = 0

    def live(self, now: float) -> dict[str, str | None]:
        """The problem of each check; None if it passes."""
        begun = self.last_tick_at is not None
        since = now - (self.last_tick_at if self.last_tick_at is not None else self.started_at)
        limit = max(10.0, STUCK_TICKS * self.tick_s) if begun else START_S
        return {
            "ticks": None if since <= limit else f"no tick for {since:.0f} s (limit {limit:.0f} s)",
            "answers": None
            if self.misses < STUCK_CHECKS or self.draining
            else f"the gRPC server did not answer the last {self.misses} checks (limit {STUCK_CHECKS})",
        }

    def ready(self, now: float) -> dict[str, str | None]:
        lists = {"list": UNLISTED} if self.unlisted else {}
        peers = {} if self.role is None else {"peers": WAITS_FOR_LEADER if self.hears_out else None}
        return {
            **self.live(now),
            "first-tick": None if self.last_tick_at is not None else "compiling and scraping for the first time",
            "drain": "stopping" if self.draining else None,
            **lists,
            **peers,
        }


def render(checks: dict[str, str | None], *, verbose: bool, role: str | None = None) -> tuple[int, str]:
    """Status and body, as the Kubernetes API server writes its health endpoints."""
    failed = {name: why for name, why in checks.items() if why is not None}
    lines = [f"[-] {name}: {why}" if why else f"[+] {name} ok" for name, why in checks.items()]
    status = 503 if failed else 200
    if verbose:
        lines += [f"role: {role}"] if role is not None else []
        return status, "\n".join([*lines, "ok" if not failed else "not ok"]) + "\n"
    return status, "ok\n" if not failed else "\n".join(line for line in lines if line.startswith("[-]")) + "\n"
