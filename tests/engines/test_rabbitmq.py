"""The real daemon reads a real RabbitMQ through its Prometheus endpoint (`make test-engines`)."""

import os
import shutil
import subprocess
from contextlib import ExitStack, contextmanager
from pathlib import Path

import aiohttp
import grpc
import pytest

from exporter.catalog import KINDS
from tests.fakes.daemon import running
from tests.fakes.keda import Keda
from tests.fakes.ports import free_ports
from tests.fakes.waiting import until

from .conftest import SCALED, WORKERS

pytestmark = pytest.mark.engines

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-rabbitmq" / "bin" / "python"
SERVER = Path("/usr/lib/rabbitmq/bin")  # of Debian; what is in PATH changes the user


@contextmanager
def broker(folder, amqp, page, ports):
    """A RabbitMQ node on loopback until the block ends. ports: of its name server and of its distribution."""
    names, distribution = map(str, ports)
    folder.joinpath("rabbitmq.conf").write_text(
        f"listeners.tcp.local = 127.0.0.1:{amqp}\nprometheus.tcp.ip = 127.0.0.1\nprometheus.tcp.port = {page}\n"
    )
    folder.joinpath("plugins").write_text("[rabbitmq_prometheus].\n")
    local = "{127,0,0,1}"
    environment = {
        **os.environ, "HOME": str(folder), "ERL_EPMD_ADDRESS": "127.0.0.1", "ERL_EPMD_PORT": names,
        "RABBITMQ_NODENAME": "tidegate@localhost", "RABBITMQ_DIST_PORT": distribution,
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"), "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"), "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"-kernel inet_dist_use_interface {local}",
    }  # fmt: skip
    with folder.joinpath("output").open("wb") as output:
        node = subprocess.Popen([SERVER / "rabbitmq-server"], env=environment, stdout=output, stderr=output)
    try:
        yield node
    finally:
        subprocess.run([SERVER / "rabbitmqctl", "shutdown"], env=environment, capture_output=True, check=False)
        node.kill()
        node.wait()
        subprocess.run(["epmd", "-port", names, "-kill"], env=environment, capture_output=True, check=False)


async def answers(url):
    """Whether the endpoint responds."""
    try:
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            return response.ok
    except aiohttp.ClientConnectionError:
        return False


@contextmanager
def client_of(amqp):
    """`run("publish 7")`: a command of rabbitmq_client."""
    command = [PYTHON, Path(__file__).with_name("rabbitmq_client.py"), str(amqp)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:

        def run(line):
            client.stdin.write(f"{line}\n")
            client.stdin.flush()
            assert client.stdout.readline() == "ok\n"

        yield run


@pytest.fixture
async def rabbit(tmp_path):
    """`rabbit("publish 7")` runs a command of rabbitmq_client; `rabbit.page`: the port of the metrics."""
    if shutil.which("rabbitmq-server") is None or not PYTHON.exists():
        pytest.skip("RabbitMQ is not installed (Debian: apt install rabbitmq-server; make test-engines)")
    amqp, page, *others = free_ports(4)
    with ExitStack() as stack:
        stack.enter_context(broker(tmp_path, amqp, page, others))
        await until(lambda: answers(f"http://127.0.0.1:{page}/metrics"), bool)
        run = stack.enter_context(client_of(amqp))
        run("publish 0")  # the queue exists
        run.page = page
        yield run


@pytest.mark.parametrize("path", [KINDS["rabbitmq"].path, "/metrics/detailed?family=queue_coarse_metrics"])
async def test_jobs_wait_run_and_end_as_the_client_left_them(rabbit, tmp_path, path):
    http, port = free_ports(2)
    config = tmp_path / "config.yaml"
    config.write_text(
        WORKERS.format(http=http, grpc=port, url=f"http://127.0.0.1:{rabbit.page}{path}", kind="rabbitmq", queue="jobs")
    )
    with running(config, tmp_path / "tidegate.log") as tidegate:

        async def jobs(waiting, running):
            return await tidegate.until_evidence("ai", "chat", waiting=waiting, running=running)

        async with grpc.aio.insecure_channel(tidegate.grpc) as channel:
            keda = Keda(channel)
            await jobs(0.0, 0.0)
            async with keda.pushes(SCALED) as next_push:
                while await next_push():  # until it is proven idle
                    pass
                assert await keda.answer(SCALED) == (0, False)
                rabbit("publish 7")
                assert await next_push() is True
                await jobs(7.0, 0.0)
                await keda.until((4, True), SCALED)  # seven jobs at two per replica
                rabbit("take 3")
                await jobs(4.0, 3.0)
                rabbit("restart")  # a consumer that dies: its jobs wait again
                await jobs(7.0, 0.0)
                rabbit("take 7")
                await jobs(0.0, 7.0)
                assert await keda.answer(SCALED) == (4, True)  # no job waits, and none has ended
                rabbit("finish")
                await jobs(0.0, 0.0)
                while await next_push():
                    pass
                await keda.until((0, False), SCALED)
