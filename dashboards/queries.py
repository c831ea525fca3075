"""Builds the PromQL that all boards share, and holds the colour of each state and reason.

Every replica of Tidegate exposes every workload, so a workload's value is the maximum over replicas: followers repeat
the leader's value, and one that is a scrape behind does not add a second one.

Worked example: `of("tidegate_active")` is `max by (namespace, workload) (tidegate_active{namespace=~"$namespace"})`;
`self_rate("tidegate_scrapes_total", "role")` is scrapes per second by role over the selected pods of Tidegate.
"""

from __future__ import annotations

from collections.abc import Sequence

from scaler.explain.outcome_inputs import OutcomeCode
from scaler.model import Reason

from .panels import GREY, Absence

FLEET = 'namespace=~"$namespace"'
# One workload: `=`, because a name may contain a dot.
ONE = 'namespace="$namespace",workload="$workload"'
# Pods of Tidegate. Their metrics of workloads and GPUs are on the other boards.
SELF = 'job=~"$job",instance=~"$instance"'

GREEN, AMBER, ORANGE, RED = "#56A64B", "#E0B400", "#FF780A", "#E02F44"
BLUE, PALE_BLUE, NAVY, TEAL = "#3274D9", "#8AB8FF", "#6E7FA8", "#37A6A6"
PURPLE, PALE_PURPLE = "#A352CC", "#CA95E5"

# States of a workload's GPUs. Warm colours are idle cost, cold ones are starting or at zero.
STATES = {"serving": GREEN, "idle_warm": AMBER, "loading": BLUE, "pending": PALE_BLUE, "asleep": NAVY, "unknown": GREY}

REASONS = {
    Reason.SERVING: GREEN,
    Reason.QUEUED: ORANGE,
    Reason.GPU_BUSY: TEAL,
    Reason.LOADING: BLUE,
    Reason.WARM: AMBER,
    Reason.ASLEEP: NAVY,
    Reason.HELD: PALE_PURPLE,
    Reason.UNKNOWN: GREY,
    Reason.NO_WAKE_SOURCE: PURPLE,
    Reason.SCHEDULED: "#B877D9",
    Reason.FROZEN: PALE_BLUE,
    Reason.CAPPED: RED,
    Reason.INCOMPLETE: "#C15C17",
    Reason.CAPACITY_LIMITED: "#8F3BB8",
}
REASON_NAMES = {float(code): (str(reason), colour) for code, (reason, colour) in enumerate(REASONS.items(), start=1)}

PROVENANCES = {"engine": GREEN, "utilisation": AMBER, "process": TEAL, "mixed": PURPLE, "none": GREY}
PROVENANCE_NAMES = {
    float(code): ("not measured" if name == "none" else name, colour)
    for code, (name, colour) in enumerate(PROVENANCES.items(), start=1)
}

# Controller outcomes, by what they require of people. `scaler.explain.outcome_inputs` defines each code.
OUTCOMES = {
    ("done", GREEN): (OutcomeCode.SETTLED, OutcomeCode.ASLEEP),
    ("pending", BLUE): (OutcomeCode.UP, OutcomeCode.DOWN, OutcomeCode.WAKES, OutcomeCode.SLEEPS, OutcomeCode.JOBS),
    ("waits", AMBER): (OutcomeCode.COOLING_DOWN, OutcomeCode.STABILISED, OutcomeCode.RATE_LIMITED),
    ("limited by configuration", PALE_PURPLE): (
        OutcomeCode.IN_BAND, OutcomeCode.AT_MAX, OutcomeCode.AT_MIN, OutcomeCode.DISABLED, OutcomeCode.PAUSED,
        OutcomeCode.OBSERVED ),
    ("problem", RED): (
        OutcomeCode.UNKNOWN, OutcomeCode.FALLBACK, OutcomeCode.CONTROLLER_ERROR, OutcomeCode.OTHER_METRICS,
        OutcomeCode.NO_WAKE_SOURCE, OutcomeCode.NO_HPA, OutcomeCode.NO_SCALER, OutcomeCode.TWO_HPAS,
        OutcomeCode.UNKNOWN_SCALER,
    ),
}  # fmt: skip
OUTCOME_NAMES = {float(number): named for number, named in enumerate(OUTCOMES, start=1)}
PROBLEM_CODES = "|".join(OUTCOMES["problem", RED])

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
    """A metric of workloads, once per workload and further labels."""
    return f"max by ({_by(labels)}) ({select(metric, where, **matchers)})"


def of_one(metric: str, *labels: str, **matchers: str) -> str:
    """The same for the selected workload."""
    return of(metric, *labels, where=ONE, **matchers)


def asleep() -> Absence:
    """The selected workload sleeps: nothing of it runs that could be measured."""
    return Absence("asleep", of_one("tidegate_reason", reason="asleep"))


def rate_of(metric: str, window: str, *labels: str, where: str = FLEET, **matchers: str) -> str:
    """Increase of a counter of workloads per second. window: such as `$__rate_interval`. Only the leader counts, so the
    total is the sum over replicas.
    """
    return f"sum by ({_by(labels)}) (rate({select(metric, where, **matchers)}[{window}]))"


def increase_of(metric: str, window: str, *labels: str, where: str = FLEET, **matchers: str) -> str:
    """Increase of a counter of workloads within a window, as `rate_of`."""
    return f"sum by ({_by(labels)}) (increase({select(metric, where, **matchers)}[{window}]))"


def fleet(metric: str, *by: str, window: str | None = None, **matchers: str) -> str:
    """Sum of an accounting metric over workloads. Only the leader exposes them, so each workload is there once, and no
    inner aggregation is needed, which makes the query five times as cheap. window: of a counter, its rate.
    """
    series = select(metric, FLEET, **matchers)
    over = f" by ({', '.join(by)})" if by else ""
    return f"sum{over} ({series})" if window is None else f"sum{over} (rate({series}[{window}]))"


# Histograms of the engines themselves, as this Prometheus scrapes their pods. vLLM has the last two at once.
TTFT = tuple(f"{engine}time_to_first_token_seconds" for engine in ("vllm:", "sglang:", "lmdeploy:", "trtllm_"))
ITL = (
    *(f"{engine}inter_token_latency_seconds" for engine in ("vllm:", "sglang:")),
    *(f"{engine}time_per_output_token_seconds" for engine in ("vllm:", "sglang:", "lmdeploy:", "trtllm_")),
)
# `chat-7c9f-x2`, `chat-0`, `chat-0-1`.
PODS = 'namespace="$namespace",pod=~"$workload-[a-z0-9]+(-[a-z0-9]+)?"'


def latency(ratio: float, histograms: Sequence[str]) -> str:
    """A quantile (0 to 1) over the pods of the selected workload, of the first of the histograms that is there.

    Without requests a quantile is NaN, which no comparison keeps.
    """
    quantiles = (
        f"histogram_quantile({ratio:g}, sum by (le) (rate({name}_bucket{{{PODS}}}[$__rate_interval]))) >= 0"
        for name in histograms
    )
    return "\nor ".join(quantiles)


def coded(metric: str, label: str, values: Sequence[str], where: str) -> str:
    """The value of a label as a number, 1 for the first of `values`, for the colours of a state timeline. If replicas
    disagree because the label changes between two scrapes, `or` takes the first.
    """
    terms = (
        of(metric, where=where, **{label: value}) + (f" * {code}" if code > 1 else "")
        for code, value in enumerate(values, start=1)
    )
    return "\nor ".join(terms)


def self_rate(metric: str, *by: str) -> str:
    """Increase of a counter of Tidegate per second, summed over pods."""
    over = f" by ({', '.join(by)})" if by else ""
    return f"sum{over} (rate({metric}{{{SELF}}}[$__rate_interval]))"


def self_quantile(ratio: float, metric: str, *by: str) -> str:
    """A quantile (0 to 1) of a histogram of Tidegate over the selected pods."""
    return f"histogram_quantile({ratio:g}, {self_rate(f'{metric}_bucket', 'le', *by)})"


def self_each(metric: str) -> str:
    """A metric of Tidegate by pod."""
    return f"max by (instance) ({metric}{{{SELF}}})"
