"""What everybody asks, as a story can take it away: a Prometheus that is none and says so, and a real Redis."""

import json
import subprocess
import time
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs

from redis import Redis, RedisError

PATIENCE_S = 30.0  # never waited for: only says what hung


class Prometheus:
    """It answers each query with the series of the jobs that its text names, scraped half a second ago and now.

    series: {job: [(name, labels, value)]}. failing: those of which it answers that it cannot (503).
    """

    def __init__(self):
        self.series, self.failing = {}, set()
        central = self

        class Handler(BaseHTTPRequestHandler):
            server_version = "fake-prometheus"

            def do_POST(self):
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                query = form["query"][0]
                body = json.dumps(central.answer(query)).encode()
                with suppress(ConnectionError):  # whoever asked has gone
                    self.send_response(503 if any(f'"{job}"' in query for job in central.failing) else 200)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def says(self, job, **queues):
        """The one pod of a job says so of its engine: `running=40, waiting=0`."""
        self.series[job] = [(f"vllm:num_requests_{name}", {"model_name": "m"}, value) for name, value in queues.items()]

    def holds(self, job, queued):
        """The endpoint picker of that job holds so many."""
        labels = {"fairness_id": "", "priority": "0", "inference_pool": "p"}
        self.series[job] = [("inference_extension_flow_control_queue_size", labels, queued)]

    def answer(self, query):
        now = time.time()
        result = [
            {"metric": {"__name__": name, **labels, **own}, "values": [[now - 0.5, str(value)], [now, str(value)]]}
            for job, said in self.series.items()
            if f'"{job}"' in query
            for own in [{"job": job, "instance": f"{job}-0:8000", "namespace": "ai", "pod": f"{job}-0"}]
            for name, labels, value in [("up", {}, 1), *said]
        ]
        return {"status": "success", "data": {"resultType": "matrix", "result": result}}


@contextmanager
def prometheus():
    made = Prometheus()
    thread = Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.02}, name="prometheus")
    thread.start()
    try:
        yield made
    finally:
        made.server.shutdown()
        thread.join(PATIENCE_S)
        made.server.server_close()


@contextmanager
def redis(program, port):
    """A redis-server, once it answers; and who asks it."""
    command = [program, "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--appendonly", "no"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    client = Redis(host="127.0.0.1", port=port)
    try:
        until = time.monotonic() + PATIENCE_S
        while not _answers(client):
            assert time.monotonic() < until, "redis-server does not answer"
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
