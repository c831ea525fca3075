"""Central sources that a test can stop: a fake Prometheus (`Server: fake-prometheus`) and a real Redis."""

import json
import subprocess
import time
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs

from redis import Redis, RedisError

PATIENCE_S = 60.0  # never reached: only shows what hung


class Prometheus:
    """Responds to each query with the series of the jobs that its text names, scraped half a second ago and now.

    series: {job: [(name, labels, value)]}. failing: the jobs with queries that get a 503.
    """

    def __init__(self):
        self.series, self.failing = {}, set()
        central = self

        class Handler(BaseHTTPRequestHandler):
            server_version = "fake-prometheus"

            def do_POST(self):
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                query = form["query"][0]
                body = json.dumps(central.response(query)).encode()
                with suppress(ConnectionError):  # the client has disconnected
                    self.send_response(503 if any(f'"{job}"' in query for job in central.failing) else 200)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def set_engine(self, job, **queues):
        """Set the queues of the engine in the job's only pod: `running=40, waiting=0`."""
        self.series[job] = [(f"vllm:num_requests_{name}", {"model_name": "m"}, value) for name, value in queues.items()]

    def set_gateway(self, job, queued):
        """Set the number of requests that the job's endpoint picker holds."""
        labels = {"fairness_id": "", "priority": "0", "inference_pool": "p"}
        self.series[job] = [("inference_extension_flow_control_queue_size", labels, queued)]

    def response(self, query):
        now = time.time()
        result = [
            {
                "metric": {"__name__": name, **labels, **job_labels},
                "values": [[now - 0.5, str(value)], [now, str(value)]],
            }
            for job, series_of_job in self.series.items()
            if f'"{job}"' in query
            for job_labels in [{"job": job, "instance": f"{job}-0:8000", "namespace": "ai", "pod": f"{job}-0"}]
            for name, labels, value in [("up", {}, 1), *series_of_job]
        ]
        return {"status": "success", "data": {"resultType": "matrix", "result": result}}


@contextmanager
def prometheus():
    fake = Prometheus()
    thread = Thread(target=fake.server.serve_forever, kwargs={"poll_interval": 0.02}, name="prometheus")
    thread.start()
    try:
        yield fake
    finally:
        fake.server.shutdown()
        thread.join(PATIENCE_S)
        fake.server.server_close()


@contextmanager
def redis(program, port):
    """A redis-server, once it responds, and a client."""
    command = [program, "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--appendonly", "no"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    client = Redis(host="127.0.0.1", port=port)
    try:
        until = time.monotonic() + PATIENCE_S
        while not _answers(client):
            assert time.monotonic() < until, "redis-server does not respond"
            time.sleep(0.02)
        yield process, client
    finally:
        client.close()
        process.kill()
        process.wait()


def _answers(client):
    try:
        return client.ping()
    except (OSError, RedisError):
        return False
