"""What will become of a number: one closed list, the same on /metrics, in explain and in the docs."""

from __future__ import annotations

from enum import StrEnum


class Code(StrEnum):
    # It is done, or there is nothing to do.
    SETTLED = "settled"  # the cluster has been told to run what Tidegate tells
    ASLEEP = "asleep"  # at zero, and stays there
    # It will be done.
    UP = "up"  # the HPA adds replicas at its next sync, all or as many as it may
    DOWN = "down"  # likewise takes some away
    WAKES = "wakes"  # KEDA goes from zero to its first replicas
    SLEEPS = "sleeps"  # KEDA goes to zero at its next poll
    # It waits, and comes.
    COOLING_DOWN = "cooling_down"  # KEDA's cooldownPeriod has not passed
    STABILISED = "stabilised"  # the HPA's stabilisation window holds
    RATE_LIMITED = "rate_limited"  # the HPA goes there, as fast as its policies allow
    # It stays as it is, by somebody's word.
    IN_BAND = "in_band"  # within the HPA's tolerance
    AT_MAX = "at_max"  # maxReplicas
    AT_MIN = "at_min"  # minReplicas, or KEDA's minReplicaCount
    DISABLED = "disabled"  # selectPolicy: Disabled
    PAUSED = "paused"  # one of KEDA's annotations
    # Nobody does anything with it, and somebody should look.
    UNKNOWN = "unknown"  # nothing is told: an error to whoever asks, which changes nothing
    FALLBACK = "fallback"  # nothing is told, and KEDA puts its fallback in its place
    OBSERVED = "observed"  # only observed: nobody may ask
    CONTROLLER_ERROR = "controller_error"  # the HPA or KEDA says that it cannot scale
    NOT_ASKED = "not_asked"  # its HPA scales by something else
    NO_WAKER = "no_waker"  # at zero, and without KEDA nobody takes it up again
    NO_HPA = "no_hpa"  # KEDA has made no HPA, so that nobody goes from one to many
    NO_SCALER = "no_scaler"  # no ScaledObject and no HPA names what it scales
    TWO_HPAS = "two_hpas"  # several HPAs name it: Kubernetes obeys none
    JOBS = "jobs"  # a ScaledJob: KEDA makes Jobs of the number
    UNSEEN = "unseen"  # who acts on it, or on what, is not known here
