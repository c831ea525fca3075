"""Starts Tidegate's commands as forks of a process that has imported them already.

Importing the daemon takes 2.3 s of CPU, which is most of what a test that starts one costs. `WarmProcess` forks it from
a server that did so once per test run (`python -m tests.fakes.warm FD`); from there on it is a process as any other,
with its own argv, environment, standard streams and exit status.

Not for tests of a start itself: how long it takes, what it imports, where its kernels come from.

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
COLD = ("scaler.__main__", "scaler.replay", "scaler.cli.replay", "scaler.cli.demo")  # not of the daemon


class WarmProcess:
    """What tests use of `subprocess.Popen`. program: a module, or the path of a script. None: /dev/null."""

    def __init__(self, program, *arguments, stdin=None, stdout=None, stderr=None, env=None, cwd=None):
        self.args, self.returncode = [program, *map(str, arguments)], None
        request = {"argv": self.args, "env": dict(os.environ if env is None else env), "cwd": str(cwd or Path.cwd())}
        self._status, theirs = os.pipe()
        null = os.open(os.devnull, os.O_RDWR)
        try:
            streams = [null if stream is None else stream.fileno() for stream in (stdin, stdout, stderr)]
            socket.send_fds(_server(), [json.dumps(request).encode()], [*streams, theirs])
        finally:
            os.close(theirs)
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
    """The connection to this test run's server, which ends with it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.fakes.warm", str(theirs.fileno())], pass_fds=[theirs.fileno()], cwd=ROOT,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            # A fork copies one thread alone: linear algebra must have none.
            env={**os.environ, "PYTHONUNBUFFERED": "1", "OPENBLAS_NUM_THREADS": "1"},
        )  # fmt: skip

    def end():
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def _import_all():
    import scaler  # noqa: PLC0415 - by the server alone

    for module in walk_packages(scaler.__path__, "scaler."):
        if not module.name.startswith(COLD):
            import_module(module.name)
    import_module("kubernetes.aio")


def _next_request(connection):
    """Fork for every request; returns it in the child that is to become the program."""
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
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "a fork copies one thread alone"
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who wait
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
