"""A daemon that runs, as it speaks of itself over HTTP: is it ready, and what does its own page warn of.

Worked example: `examine("http://127.0.0.1:8080", now)` of a daemon that has refused its last configuration has a
failure "the last configuration it read was rejected".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

import requests
from prometheus_client.parser import text_string_to_metric_families

from . import clocks
from .check import Check, fail, ok, warn

PATIENCE_S = 5.0
# Snapshots are written every 10 s unless told otherwise; an hour apart at the most.
OLD_SNAPSHOT_S = 120.0
OLD_BOARD_S = 15.0

Labels: TypeAlias = tuple[tuple[str, str], ...]
Numbers: TypeAlias = Mapping[str, Mapping[Labels, float]]


class DaemonResponse(NamedTuple):
    status: int
    text: str
    date: str | None


def get(url: str) -> DaemonResponse:
    """Raises requests.RequestException."""
    response = requests.get(url, timeout=PATIENCE_S, allow_redirects=False)
    return DaemonResponse(response.status_code, response.text, response.headers.get("Date"))


def is_tidegate(url: str) -> bool:
    """Whether whoever answers there is one."""
    try:
        return "tidegate_build" in get(f"{url}/metrics?name[]=tidegate_build_info").text
    except requests.RequestException:
        return False


def examine(url: str, now: Callable[[], float], snapshot_s: float | None = None) -> list[Check]:
    """url: where its HTTP listener is. now: POSIX seconds. snapshot_s: how often it writes one, where that is known."""
    name = f"daemon {url}"
    asked_at = now()
    try:
        ready = get(f"{url}/readyz?verbose")
        came_at = now()
        page = get(f"{url}/metrics")
        numbers = read(page.text)
    except requests.RequestException as error:
        words = type(error).__name__
        return [fail(name, f"no answer ({words})", "is it up, and is this the address of listen.http?")]
    except ValueError as error:
        return [fail(name, f"its /metrics cannot be read: {error}", "is this the address of a Tidegate's listen.http?")]
    if "tidegate_build_info" not in numbers:
        return [fail(name, "whoever answers there is no Tidegate", "is this the address of listen.http?")]
    checks = [_ready(name, ready), clocks.check("the daemon", ready.date, asked_at, came_at)]
    return checks + of_numbers(numbers, snapshot_s)


def read(text: str) -> Numbers:
    """Each series of a page by name and labels. Raises ValueError."""
    found: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def _ready(name: str, answer: DaemonResponse) -> Check:
    wrong = [line.removeprefix("[-] ") for line in answer.text.splitlines() if line.startswith("[-]")]
    if wrong or answer.status != requests.codes.ok:
        do = "it warms up for half a minute after a start; if it stays, its log says why"
        return fail(name, f"not ready: {'; '.join(wrong) or f'HTTP {answer.status}'}", do)
    role = answer.text.rpartition("role: ")[2].partition("\n")[0] if "role: " in answer.text else ""
    return ok(name, f"ready{f', as {role}' if role else ''}")


def of_numbers(numbers: Numbers, snapshot_s: float | None) -> list[Check]:
    checks = []
    reloaded = one(numbers, "tidegate_config_last_reload_successful")
    if reloaded == 0.0:
        do = "its log says what is wrong; `tidegate check FILE` says it too. The old configuration stays in force"
        checks.append(fail("daemon's configuration", "the last configuration it read was rejected", do))
    elif reloaded is not None:
        checks.append(ok("daemon's configuration", "the last one it read is in force"))
    checks += _snapshots(numbers, snapshot_s)
    checks += _peers(numbers)
    unknown = [
        dict(labels).get("resource", "?") for labels, value in series(numbers, "tidegate_kubernetes_known") if not value
    ]
    if unknown:
        do = "see `rights`: RBAC or the API server keeps them from it, and decisions that rest on them are held"
        checks.append(fail("daemon's view of Kubernetes", f"not known: {', '.join(sorted(unknown))}", do))
    down = [labels for labels, value in series(numbers, "tidegate_scrape_up") if not value]
    if down:
        some = ", ".join(dict(labels).get("target", "?") for labels in down[:3]) + (" ..." if len(down) > 3 else "")  # noqa: PLR2004
        checks.append(warn("daemon's pages", f"{len(down)} did not answer last time: {some}", "see the pages below"))
    refused = sum(
        value for labels, value in series(numbers, "tidegate_events_dropped_total") if ("why", "refused") in labels
    )
    if refused:
        do = "give it the right to create and patch Events, or set kubernetes.events: false"
        checks.append(warn("daemon's Events", f"{refused:.0f} were not written: RBAC does not allow it", do))
    return checks


def _snapshots(numbers: Numbers, every_s: float | None) -> list[Check]:
    age, failures = one(numbers, "tidegate_snapshot_age_seconds"), one(numbers, "tidegate_snapshot_failures_total")
    if age is None:
        return []
    if one(numbers, "tidegate_snapshot_directory_owned") == 0.0:
        do = (
            "its log names the owner. Two pods share one volume: give each its own, or wait until the old one has ended"
        )
        return [warn("daemon's snapshots", "another process holds the lock of state.directory", do)]
    limit = OLD_SNAPSHOT_S if every_s is None else max(3.0 * every_s, 30.0)
    if age > limit:
        do = "is the volume of state.directory full, or read-only? What is remembered would be lost in a restart"
        return [fail("daemon's snapshots", f"the last one is {age:.0f} s old, {failures or 0:.0f} failed", do)]
    return [ok("daemon's snapshots", f"the last one is {age:.0f} s old")]


def _peers(numbers: Numbers) -> list[Check]:
    leads, age = one(numbers, "tidegate_leader"), one(numbers, "tidegate_peer_board_age_seconds")
    if leads is None:
        return []
    if leads:
        return [ok("daemon's peers", "it leads")]
    if age is None:
        do = "is there a leader, can it be reached on listen.peers, and may the Lease be written? It answers for itself"
        return [warn("daemon's peers", "it follows nobody", do)]
    if age > OLD_BOARD_S:
        return [warn("daemon's peers", f"the leader's Board is {age:.0f} s old", "is the leader well, and in reach?")]
    return [ok("daemon's peers", f"it follows, {age:.1f} s behind")]


def one(numbers: Numbers, name: str) -> float | None:
    """The value of a series without labels."""
    return numbers.get(name, {}).get(())


def series(numbers: Numbers, name: str) -> list[tuple[Labels, float]]:
    return sorted(numbers.get(name, {}).items())
