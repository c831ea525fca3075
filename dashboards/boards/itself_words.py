"""What the queries about Tidegate itself have in common: they are of one installation's pods.

Worked example: `rate("tidegate_scrapes_total", "role")` is scrapes per second by role, over all chosen pods.
"""

from __future__ import annotations

# The metrics that it repeats of workloads and GPUs are on the other boards.
OWN = 'job=~"$job",instance=~"$instance"'


def rate(metric: str, *by: str) -> str:
    """How fast a counter rises, per second, added up over pods."""
    over = f" by ({', '.join(by)})" if by else ""
    return f"sum{over} (rate({metric}{{{OWN}}}[$__rate_interval]))"


def quantile(which: float, metric: str, *by: str) -> str:
    """A quantile of a histogram over all chosen pods, 0 to 1."""
    return f"histogram_quantile({which:g}, {rate(f'{metric}_bucket', 'le', *by)})"


def each(metric: str) -> str:
    """A metric by pod."""
    return f"max by (instance) ({metric}{{{OWN}}})"
