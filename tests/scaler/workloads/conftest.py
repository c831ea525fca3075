"""A configuration of which a test reads the objects of a cluster."""

import pytest

from scaler.config import Config, Kubernetes, Workload
from tests.scaler.workloads.objects import Cluster


@pytest.fixture
def cluster():
    """kubernetes: its fields that differ from the defaults; more: fields of Config."""

    def of(*workloads: Workload, kubernetes=None, **more) -> Cluster:
        return Cluster(Config(workloads=workloads, kubernetes=Kubernetes(**(kubernetes or {})), **more))

    return of
