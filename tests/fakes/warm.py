"""Starts Tidegate's commands as forks of a process that has already imported them.

Importing the daemon takes 2.3 s of CPU, which is most of the cost of a test that starts one. `WarmProcess` forks it
from a server that does so once per test run (`python -m tests.fakes.warm FD`). After the fork it is an ordinary process
with its own argv, environment, standard streams and exit status.

Not for tests of the start itself: its duration, its imports, the source of its kernels.

Worked example: `WarmProcess("scaler", "run", "-c", "config.yaml", stderr=log).wait()` is its exit status.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

ROOT = Path(__file__).parents[2]
REQUEST_BYTES = 1 << 17  # an argument list and an environment
COLD = ("scaler.__main__", "scaler.replay", "scaler.cli.replay", "scaler.cli.demo")  # not part of the daemon


class WarmProcess:
    """The part of `subprocess.Popen` that tests use. program: a module, or the path of a script. None: /dev/null."""

    def __init__(self, program, *arguments, stdin=None, stdout=None, stderr=None, env=None, cwd=None):
        self.args, self.returncode = [program, *map(str, arguments)], None
        request = {"argv": self.args, "env": dict(os.environ if env is None else env), "cwd": str(cwd or Path.cwd())}
        self._status, server_end = os.pipe()
        null = os.open(os.devnull, os.O_RDWR)
        try:
            streams = [null if stream is None else stream.fileno() for stream in (stdin, stdout, stderr)]
            socket.send_fds(_server(), [json.dumps(request).encode()], [*streams, server_end])
        finally:
            os.close(server_end)
            os.close(null)
        self.pid = self._read()

    def poll(self):
        if self.returncode is None and select.select([self._status], [], [], 0.0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout=None):
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout)
            self.returncode = self._read()
            os.close(self._status)
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self):
        self.send_signal(signal.SIGTERM)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def _read(self):
        line = b""
        while not line.endswith(b"\n"):
            part = os.read(self._status, 1)
            if not part:
                raise RuntimeError(f"the server of warm processes has ended: {self.args}")
            line += part
        return int(line)


@cache
def _server():
    """The connection to this test run's server, which ends when the connection closes."""
    client_end, server_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with server_end:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.fakes.warm", str(server_end.fileno())],
            pass_fds=[server_end.fileno()], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            # A fork copies only one thread: linear algebra must not start any.
            env={**os.environ, "PYTHONUNBUFFERED": "1", "OPENBLAS_NUM_THREADS": "1"},
        )  # fmt: skip

    def end():
        client_end.close()
        process.wait()

    atexit.register(end)
    return client_end


def _import_all():
    import scaler  # noqa: PLC0415 - by the server alone

    for module in walk_packages(scaler.__path__, "scaler."):
        if not module.name.startswith(COLD):
            import_module(module.name)
    import_module("kubernetes.aio")


def _next_request(connection):
    """Fork for every request; returns it in the child that is to run the program."""
    while True:
        message, fds, *_ = socket.recv_fds(connection, REQUEST_BYTES, 4)
        if not message:
            sys.exit()
        if os.fork() == 0:
            connection.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            *streams, status = fds
            pid = os.fork()
            if pid == 0:
                os.close(status)
                for number, stream in enumerate(streams):
                    os.dup2(stream, number)
                    os.close(stream)
                return json.loads(message)
            os.write(status, b"%d\n" % pid)
            _, ended = os.waitpid(pid, 0)
            os.write(status, b"%d\n" % os.waitstatus_to_exitcode(ended))
            os._exit(0)
        for fd in fds:
            os.close(fd)


def _main():
    _import_all()
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "a fork copies only one thread"
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no process waits for the children
    gc.freeze()
    request = _next_request(socket.socket(fileno=int(sys.argv[1])))
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    program, *_ = sys.argv = request["argv"]
    if program.endswith(".py"):
        runpy.run_path(program, run_name="__main__")
    else:
        runpy.run_module(program, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
