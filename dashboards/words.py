"""The words that all boards share: which workloads a query is of, and the colour of each state and reason.

Every replica of Tidegate shows every workload, so a workload's value is the largest over replicas: they repeat the
leader's, and one that is a scrape behind does not make two of it.

Worked example: `of("tidegate_active")` is `max by (namespace, workload) (tidegate_active{namespace=~"$namespace"})`.
"""

from __future__ import annotations

from collections.abc import Sequence

from scaler.explain.outcome_inputs import OutcomeCode
from scaler.model import Reason

FLEET = 'namespace=~"$namespace"'
# One workload: `=`, because a name with a dot or a slash is no regular expression.
ONE = 'namespace="$namespace",workload="$workload"'

GREEN, AMBER, ORANGE, RED = "#56A64B", "#E0B400", "#FF780A", "#E02F44"
BLUE, PALE_BLUE, NAVY, TEAL = "#3274D9", "#8AB8FF", "#6E7FA8", "#37A6A6"
PURPLE, PALE_PURPLE, GREY = "#A352CC", "#CA95E5", "#8E8E8E"

# What a workload's GPUs do. Warm colours cost money for nothing, cold ones are on the way or at rest.
STATES = {
    "serving": GREEN,
    "idle_warm": AMBER,
    "loading": BLUE,
    "pending": PALE_BLUE,
    "asleep": NAVY,
    "unknown": GREY,
}

REASONS = {
    Reason.SERVING: GREEN,
    Reason.QUEUED: ORANGE,
    Reason.GPU_BUSY: TEAL,
    Reason.LOADING: BLUE,
    Reason.WARM: AMBER,
    Reason.ASLEEP: NAVY,
    Reason.HELD: PALE_PURPLE,
    Reason.UNKNOWN: GREY,
    Reason.NO_WAKER: PURPLE,
    Reason.SCHEDULED: "#B877D9",
    Reason.FROZEN: PALE_BLUE,
    Reason.CAPPED: RED,
    Reason.INCOMPLETE: "#C15C17",
}
REASON_NAMES = {float(code): (str(reason), colour) for code, (reason, colour) in enumerate(REASONS.items(), start=1)}

PROVENANCES = {"engine": GREEN, "utilisation": AMBER, "process": TEAL, "mixed": PURPLE, "none": GREY}
PROVENANCE_NAMES = {float(code): named for code, named in enumerate(PROVENANCES.items(), start=1)}

# What becomes of an answer, by what it asks of people. `scaler.explain.outcome_inputs` says what each code means.
OUTLOOKS = {
    ("done", GREEN): (OutcomeCode.SETTLED, OutcomeCode.ASLEEP),
    ("will be done", BLUE): (OutcomeCode.UP, OutcomeCode.DOWN, OutcomeCode.WAKES, OutcomeCode.SLEEPS, OutcomeCode.JOBS),
    ("waits", AMBER): (OutcomeCode.COOLING_DOWN, OutcomeCode.STABILISED, OutcomeCode.RATE_LIMITED),
    ("stays, as somebody set it", PALE_PURPLE): (
        OutcomeCode.IN_BAND, OutcomeCode.AT_MAX, OutcomeCode.AT_MIN, OutcomeCode.DISABLED, OutcomeCode.PAUSED,
        OutcomeCode.OBSERVED ),
    ("somebody should look", RED): (
        OutcomeCode.UNKNOWN, OutcomeCode.FALLBACK, OutcomeCode.CONTROLLER_ERROR, OutcomeCode.OTHER_METRICS,
        OutcomeCode.NO_WAKE_SOURCE, OutcomeCode.NO_HPA, OutcomeCode.NO_SCALER, OutcomeCode.TWO_HPAS, OutcomeCode.UNSEEN,
    ),
}  # fmt: skip
OUTLOOK_NAMES = {float(number): named for number, named in enumerate(OUTLOOKS, start=1)}
TO_LOOK_AT = "|".join(OUTLOOKS["somebody should look", RED])

YES_NO = {1.0: ("yes", GREEN), 0.0: ("no", RED)}


def select(metric: str, where: str, **matchers: str) -> str:
    """A selector. matchers: label="value", or label="~expression"."""
    more = (
        f'{label}=~"{value.removeprefix("~")}"' if value.startswith("~") else f'{label}="{value}"'
        for label, value in matchers.items()
    )
    return f"{metric}{{{','.join((where, *more))}}}"


def _by(labels: Sequence[str]) -> str:
    return ", ".join(("namespace", "workload", *labels))


def of(metric: str, *labels: str, where: str = FLEET, **matchers: str) -> str:
    """A metric of workloads, once per workload and per further label."""
    return f"max by ({_by(labels)}) ({select(metric, where, **matchers)})"


def of_one(metric: str, *labels: str, **matchers: str) -> str:
    """The same of the one workload that a board is about."""
    return of(metric, *labels, where=ONE, **matchers)


def rate_of(metric: str, window: str, *labels: str, where: str = FLEET, **matchers: str) -> str:
    """How fast a counter of workloads rises, per second. window: as `$__rate_interval`. Only the replica that leads
    counts on, so what they all counted is their sum.
    """
    return f"sum by ({_by(labels)}) (rate({select(metric, where, **matchers)}[{window}]))"


def increase_of(metric: str, window: str, *labels: str, where: str = FLEET, **matchers: str) -> str:
    """By how much a counter of workloads rose within a window, as `rate_of`."""
    return f"sum by ({_by(labels)}) (increase({select(metric, where, **matchers)}[{window}]))"


def fleet(metric: str, *by: str, window: str | None = None, **matchers: str) -> str:
    """An account of all workloads together. Only the replica that leads keeps them, so each workload is there once, and
    need not be told apart first: that makes it five times as cheap. window: of a counter, how fast it rises.
    """
    series = select(metric, FLEET, **matchers)
    over = f" by ({', '.join(by)})" if by else ""
    return f"sum{over} ({series})" if window is None else f"sum{over} (rate({series}[{window}]))"


def coded(metric: str, label: str, values: Sequence[str], where: str) -> str:
    """A label's value as a number, 1 for the first of `values`: a state timeline colours numbers. A workload whose
    label changes between the scrapes of two replicas has one number all the same: `or` takes the first.
    """
    terms = (
        of(metric, where=where, **{label: value}) + (f" * {code}" if code > 1 else "")
        for code, value in enumerate(values, start=1)
    )
    return "\nor ".join(terms)
