"""The configuration: YAML -> a frozen value, or everything that is wrong with it, each with file:line:column."""

from .endpoint import Access, Basic, Endpoint, Tls
from .load import check, load, parse, read
from .model import Config, Freshness, GrpcTls, Listen, Log, Scrape
from .problem import ConfigErrors, Problem
from .scalars import Address
from .workload import Objectives, Replicas, Smoothing, Workload

__all__ = [
    "Access",
    "Address",
    "Basic",
    "Config",
    "ConfigErrors",
    "Endpoint",
    "Freshness",
    "GrpcTls",
    "Listen",
    "Log",
    "Objectives",
    "Problem",
    "Replicas",
    "Scrape",
    "Smoothing",
    "Tls",
    "Workload",
    "check",
    "load",
    "parse",
    "read",
]
