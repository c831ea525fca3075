"""Loads configurations: YAML becomes a frozen value, or all its problems, each with file, line and column."""

from .endpoint import Endpoint, Redis, Running
from .errors import ConfigErrors, Problem
from .loader import load, parse, read
from .model import Config, DcgmExporter, Kubernetes, MetricsApi, Peers, Scrape, SharedGateway, Snapshots
from .overrides import Schedule
from .scalars import Address
from .workload import Objectives, Replicas, Smoothing, Workload

__all__ = [
    "Address", "Config", "ConfigErrors", "DcgmExporter", "Endpoint", "Kubernetes", "MetricsApi", "Objectives", "Peers",
    "Problem", "Redis", "Replicas", "Running", "Schedule", "Scrape", "SharedGateway", "Smoothing", "Snapshots",
    "Workload", "load", "parse", "read",
]  # fmt: skip
