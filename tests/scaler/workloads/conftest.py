"""A configuration, ready to meet what its cluster says."""

import pytest

from scaler.config import Config, Kubernetes, Workload
from tests.scaler.workloads.objects import Cluster


@pytest.fixture
def cluster():
    """kubernetes: fields of it that are not the defaults; more: fields of Config."""

    def of(*workloads: Workload, kubernetes=None, **more) -> Cluster:
        return Cluster(Config(workloads=workloads, kubernetes=Kubernetes(**(kubernetes or {})), **more))

    return of
