"""A Ray cluster with Serve: `python ray_cluster.py HEAD WORKER HTTP DIR`, in the environment of `make test-engines`.

HEAD, WORKER: ports of the metrics of the head and of a worker node. HTTP: the port of Serve's proxy on the head. Prints
`ready`, then reads commands from stdin, a line each, and prints `ok` after each: `add` starts the worker node, `remove`
kills it. Only on a worker node does the deployment `Held` have room for its replicas. A request for `/held?name=x`
lasts until the file `x` is in DIR, and fails if that says `fail`.
"""

import asyncio
import sys
from pathlib import Path

import ray
from ray import serve
from ray.cluster_utils import Cluster

REPLICAS, MOST_ONGOING, MOST_QUEUED = 2, 2, 3  # the last per proxy
_LOOPBACK, _MEMORY = "127.0.0.1", 100 << 20


@serve.deployment(
    num_replicas=REPLICAS,
    max_ongoing_requests=MOST_ONGOING,
    max_queued_requests=MOST_QUEUED,
    health_check_period_s=1,
    graceful_shutdown_timeout_s=1,
    ray_actor_options={"num_cpus": 0, "resources": {"worker": 1}},
)
class Held:
    def __init__(self, folder):
        self.folder = Path(folder)

    async def __call__(self, request):
        end = self.folder / request.query_params["name"]
        while not end.exists():  # noqa: ASYNC110 - the file is another process' event
            await asyncio.sleep(0.02)
        if end.read_text() == "fail":
            raise RuntimeError("as the client asked")
        return "done"


class Nodes:
    def __init__(self, head, worker):
        self._port = worker
        self._cluster = Cluster(
            initialize_head=True, head_node_args=self._options(num_cpus=2, metrics_export_port=head)
        )

    def add(self):
        options = self._options(num_cpus=2, metrics_export_port=self._port, resources={"worker": REPLICAS})
        self._worker = self._cluster.add_node(**options)

    def remove(self):
        self._cluster.remove_node(self._worker, allow_graceful=False)

    def connect(self):
        ray.init(address=self._cluster.address, configure_logging=False, log_to_driver=False)

    @staticmethod
    def _options(**options):
        return {"node_ip_address": _LOOPBACK, "object_store_memory": _MEMORY, "include_dashboard": False, **options}


def say(word):
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def main():
    head, worker, http = map(int, sys.argv[1:4])
    nodes = Nodes(head, worker)
    nodes.connect()
    serve.start(http_options=serve.config.HTTPOptions(host=_LOOPBACK, port=http, location="HeadOnly"))
    nodes.add()
    serve.run(Held.bind(sys.argv[4]), name="app", route_prefix="/held")
    say("ready")
    while command := sys.stdin.readline().strip():
        getattr(nodes, command)()
        say("ok")


if __name__ == "__main__":
    main()
