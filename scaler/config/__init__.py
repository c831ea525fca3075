"""The configuration: YAML -> a frozen value, or everything that is wrong with it, each with file:line:column."""

from .access import Access, Basic, Tls
from .bad_words import BadWord, BadWords
from .cluster import DcgmExporter, Kubernetes, SharedGateway
from .endpoint import Endpoint, PrometheusQuery
from .load import check, load, parse, read
from .model import Config, Freshness, GrpcTls, Listen, Log, MetricsApi, Prices, Scrape, Snapshots
from .overrides import Schedule
from .peers import Peers
from .problem import ConfigErrors, Problem
from .redis import Delayed, Redis, Running, StreamGroup
from .scalars import Address
from .tenant import Trigger, TriggerWorkload
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
