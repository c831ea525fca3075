"""Loads configurations: YAML becomes a frozen value, or all its problems, each with file, line and column."""

from .endpoint import Endpoint, Redis, Running
from .errors import ConfigErrors, Problem
from .loader import load, parse, read
from .model import Checkpoints, Config, DcgmExporter, Kubernetes, MetricsApi, Otlp, Peers, Scrape, SharedGateway
from .overrides import Schedule
from .scalars import Address
from .workload import Objectives, Replicas, Smoothing, Workload

__all__ = [
    "Address",
    "Checkpoints",
    "Config",
    "ConfigErrors",
    "DcgmExporter",
    "Endpoint",
    "Kubernetes",
    "MetricsApi",
    "Objectives",
    "Otlp",
    "Peers",
    "Problem",
    "Redis",
    "Replicas",
    "Running",
    "Schedule",
    "Scrape",
    "SharedGateway",
    "Smoothing",
    "Workload",
    "load",
    "parse",
    "read",
]  # fmt: skip
