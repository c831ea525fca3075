"""Checks a running daemon by its own HTTP endpoints: readiness and warnings in its metrics.

Worked example: if the daemon rejected its last configuration, `examine("http://127.0.0.1:8080", now)` has the failure
"the last configuration was rejected".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

import requests
from prometheus_client.parser import text_string_to_metric_families

from .check import Check, check_clock, fail, ok, warn

TIMEOUT_S = 5.0
# Checkpoints are written every 10 s by default, at most an hour apart.
OLD_CHECKPOINT_S = 120.0
OLD_BOARD_S = 15.0
MOST_NAMES = 3
# A busy machine delays some scrapes; from this share on, readings are older than configured.
MOST_DELAYED = 0.01

Labels: TypeAlias = tuple[tuple[str, str], ...]
Samples: TypeAlias = Mapping[str, Mapping[Labels, float]]


class DaemonResponse(NamedTuple):
    status: int
    text: str
    date: str | None


def get(url: str) -> DaemonResponse:
    """Raises requests.RequestException."""
    response = requests.get(url, timeout=TIMEOUT_S, allow_redirects=False)
    return DaemonResponse(response.status_code, response.text, response.headers.get("Date"))


def is_tidegate(url: str) -> bool:
    try:
        return "tidegate_build" in get(f"{url}/metrics?name[]=tidegate_build_info").text
    except requests.RequestException:
        return False


def examine(url: str, now: Callable[[], float], checkpoint_interval_s: float | None = None) -> list[Check]:
    """url: of its HTTP listener. now: POSIX seconds. checkpoint_interval_s: None if unknown."""
    name = f"daemon {url}"
    remedy = "check that the daemon runs, and that this is the address of its listen.http"
    sent_at = now()
    try:
        ready = get(f"{url}/readyz?verbose")
        received_at = now()
        samples = parse_samples(get(f"{url}/metrics").text)
    except requests.RequestException as error:
        return [fail(name, f"no response ({type(error).__name__})", remedy)]
    except ValueError as error:
        return [fail(name, f"its /metrics is invalid: {error}", remedy)]
    if "tidegate_build_info" not in samples:
        return [fail(name, "not a Tidegate", remedy)]
    checks = [_check_ready(name, ready), check_clock("the daemon", ready.date, sent_at, received_at)]
    return checks + check_samples(samples, checkpoint_interval_s)


def parse_samples(text: str) -> Samples:
    """The samples of a metrics page by name and labels. Raises ValueError."""
    samples: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return samples


def _check_ready(name: str, response: DaemonResponse) -> Check:
    failed = [line.removeprefix("[-] ") for line in response.text.splitlines() if line.startswith("[-]")]
    if failed or response.status != requests.codes.ok:
        remedy = "it starts within half a minute; if this persists, see its log"
        return fail(name, f"not ready: {'; '.join(failed) or f'HTTP {response.status}'}", remedy)
    role = response.text.rpartition("role: ")[2].partition("\n")[0] if "role: " in response.text else ""
    return ok(name, f"ready{f', as {role}' if role else ''}")


def check_samples(samples: Samples, checkpoint_interval_s: float | None) -> list[Check]:
    checks = []
    reloaded = _value(samples, "tidegate_config_last_reload_successful")
    if reloaded == 0.0:
        remedy = "its log has the errors, as has `tidegate check FILE`. The previous configuration is still active"
        checks.append(fail("daemon's configuration", "the last configuration was rejected", remedy))
    elif reloaded is not None:
        checks.append(ok("daemon's configuration", "the last configuration is active"))
    checks += _check_checkpoint(samples, checkpoint_interval_s)
    checks += _check_replication(samples)
    unknown = [
        dict(labels).get("resource", "?")
        for labels, value in _series(samples, "tidegate_kubernetes_synced")
        if not value
    ]
    if unknown:
        remedy = "see the permissions below and the API server; decisions that depend on these are held"
        checks.append(fail("daemon's view of Kubernetes", f"unknown: {', '.join(sorted(unknown))}", remedy))
    down = [dict(labels).get("target", "?") for labels, value in _series(samples, "tidegate_scrape_up") if not value]
    if down:
        names = ", ".join(down[:MOST_NAMES]) + (" ..." if len(down) > MOST_NAMES else "")
        result = f"the last scrape of {len(down)} failed: {names}"
        checks.append(warn("daemon's targets", result, "see the targets below"))
    checks += _check_delays(samples)
    refused = sum(
        value for labels, value in _series(samples, "tidegate_events_dropped_total") if ("why", "refused") in labels
    )
    if refused:
        remedy = "give it permission to create and patch Events, or set kubernetes.events: false"
        checks.append(warn("daemon's Events", f"{refused:.0f} were not written: forbidden by RBAC", remedy))
    return checks


def _check_delays(samples: Samples) -> list[Check]:
    """Late and skipped scrapes since the start of the daemon."""
    late = _value(samples, "tidegate_scrapes_late_total")
    scrapes = sum(value for _, value in _series(samples, "tidegate_scrapes_total"))
    skipped = {dict(labels).get("reason"): n for labels, n in _series(samples, "tidegate_scrapes_skipped_total")}
    if late is None or late + sum(skipped.values()) <= MOST_DELAYED * scrapes:
        return []
    overload, slow = skipped.get("overload", 0.0), skipped.get("slow_target", 0.0)
    result = f"of {scrapes:.0f} since its start, {late:.0f} were late; {overload:.0f} more were skipped by overload"
    if slow:
        result += f", and {slow:.0f} because the target had not responded to the last request"
    remedy = "if they rise: give it a faster CPU or a longer scrape.interval, or split its workloads in two"
    return [warn("daemon's scrapes", result, remedy)]


def _check_checkpoint(samples: Samples, interval_s: float | None) -> list[Check]:
    name, age = "daemon's checkpoint", _value(samples, "tidegate_checkpoint_age_seconds")
    failures = _value(samples, "tidegate_checkpoint_failures_total")
    if age is None:
        return []
    if _value(samples, "tidegate_checkpoint_directory_owned") == 0.0:
        remedy = (
            "its log names the owner. If two pods share a volume, give each its own; else wait until the old pod ends"
        )
        return [warn(name, "another process holds the lock of state.directory", remedy)]
    limit = OLD_CHECKPOINT_S if interval_s is None else max(3.0 * interval_s, 30.0)
    if age > limit:
        remedy = "check that the volume of state.directory is writable and not full. A restart would lose state"
        return [fail(name, f"the last one is {age:.0f} s old, {failures or 0:.0f} failed", remedy)]
    return [ok(name, f"the last one is {age:.0f} s old")]


def _check_replication(samples: Samples) -> list[Check]:
    name = "daemon's replication"
    leads, age = _value(samples, "tidegate_leader"), _value(samples, "tidegate_peer_board_age_seconds")
    if leads is None:
        return []
    if leads:
        return [ok(name, "it leads")]
    if age is None:
        remedy = "check that a leader exists, is reachable on listen.peers, and may write the Lease"
        return [warn(name, "it follows no leader and publishes its own decisions", remedy)]
    if age > OLD_BOARD_S:
        return [warn(name, f"the leader's Board is {age:.0f} s old", "check that the leader is ready and reachable")]
    return [ok(name, f"it follows, {age:.1f} s behind")]


def _value(samples: Samples, name: str) -> float | None:
    """The value of a series without labels."""
    return samples.get(name, {}).get(())


def _series(samples: Samples, name: str) -> list[tuple[Labels, float]]:
    return sorted(samples.get(name, {}).items())
