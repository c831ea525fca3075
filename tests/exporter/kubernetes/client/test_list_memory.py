"""A long list is held as decoded records and never as the API's JSON."""

import json
import tracemalloc
from random import Random

import pytest

from exporter.kubernetes.cache import Cluster
from exporter.kubernetes.protocol import ListPage
from exporter.kubernetes.reflector import Reflector
from exporter.kubernetes.resources import PODS
from exporter.model import PodKey
from tests.fakes import objects as api
from tests.fakes.clock import SleeplessClock

PAGES, PODS_EACH, PADDING_BYTES = 12, 20, 20_000
PAGE_BYTES = PODS_EACH * PADDING_BYTES


class Ended(Exception):  # noqa: N818 - it ends the test's loop
    pass


class Lists:
    """Serves PAGES pages of pods; records the allocated bytes at each request."""

    def __init__(self):
        self.held_bytes = []

    async def page(self, resource, namespace, after):
        self.held_bytes.append(tracemalloc.get_traced_memory()[0])
        number = int(after or 0)
        padding = {"annotations": {"last-applied": "x" * PADDING_BYTES}}
        pods = [api.pod(f"p-{number}-{each}", metadata=padding) for each in range(PODS_EACH)]
        pods.append({"metadata": "malformed"})
        body = json.dumps(pods)
        return ListPage(json.loads(body), "7", str(number + 1) if number + 1 < PAGES else "")

    async def watch(self, resource, namespace, version):
        raise Ended
        yield


@pytest.fixture
def traced():
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced")
async def test_pages_of_a_list_are_trimmed_as_they_arrive():
    lists, cluster = Lists(), Cluster(blind_s=60.0)
    with pytest.raises(Ended):
        await Reflector(lists, PODS, None, cluster, SleeplessClock(), lambda *_: None, Random(1)).follow()
    assert len(lists.held_bytes) == PAGES
    # Between two requests, at most the last page is held as JSON.
    assert max(lists.held_bytes) - lists.held_bytes[0] < 2 * PAGE_BYTES
    assert cluster.pod(PodKey("ai", "p-0-0")) is not None
    assert cluster.pod(PodKey("ai", f"p-{PAGES - 1}-{PODS_EACH - 1}")) is not None
    assert cluster.malformed["pods"] == PAGES
