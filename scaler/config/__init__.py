"""The configuration: YAML -> a frozen value, or everything that is wrong with it, each with file:line:column."""

from .endpoint import Access, Basic, Delayed, Endpoint, PrometheusQuery, Redis, Running, StreamGroup, Tls
from .errors import BadWord, BadWords, ConfigErrors, Problem
from .loader import check, load, parse, read
from .model import (
    Config,
    DcgmExporter,
    Freshness,
    GrpcTls,
    Kubernetes,
    Listen,
    Log,
    MetricsApi,
    Peers,
    Prices,
    Scrape,
    SharedGateway,
    Snapshots,
)
from .overrides import Schedule
from .scalars import Address
from .trigger import Trigger, TriggerWorkload
from .workload import Objectives, Replicas, Smoothing, Workload

__all__ = [
    "Access",
    "Address",
    "BadWord",
    "BadWords",
    "Basic",
    "Config",
    "ConfigErrors",
    "DcgmExporter",
    "Delayed",
    "Endpoint",
    "Freshness",
    "GrpcTls",
    "Kubernetes",
    "Listen",
    "Log",
    "MetricsApi",
    "Objectives",
    "Peers",
    "Prices",
    "Problem",
    "PrometheusQuery",
    "Redis",
    "Replicas",
    "Running",
    "Schedule",
    "Scrape",
    "SharedGateway",
    "Smoothing",
    "Snapshots",
    "StreamGroup",
    "Tls",
    "Trigger",
    "TriggerWorkload",
    "Workload",
    "check",
    "load",
    "parse",
    "read",
]
