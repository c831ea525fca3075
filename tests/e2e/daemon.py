"""The daemon as a process of this host that tests kill, freeze and restart, always on the same ports."""

import json
import os
import signal
import subprocess
import sys
import time

import requests

from tests.fakes.daemon import log_lines

START_S = 180.0  # a cold start compiles the kernels
STOP_S = 30.0


class Daemon:
    """config: the file. http: its port."""

    def __init__(self, config, http, folder):
        self._config, self._url, self._folder = config, f"http://127.0.0.1:{http}", folder
        self._process = None
        self._starts = 0

    @property
    def log(self):
        return self._folder / f"log-{self._starts}"

    def start(self):
        """Returns when it is ready."""
        self._starts += 1
        command = [sys.executable, "-m", "scaler", "run", "-c", str(self._config)]
        with self.log.open("wb") as file:
            self._process = subprocess.Popen(command, stderr=file, env={**os.environ, "PYTHONUNBUFFERED": "1"})
        deadline = time.monotonic() + START_S
        while not self._ready():
            assert self._process.poll() is None, self.log.read_text(encoding="utf-8")
            assert time.monotonic() < deadline, self.log.read_text(encoding="utf-8")
            time.sleep(0.1)

    def stop(self):
        """SIGTERM, as Kubernetes ends a pod; the exit status must be 0."""
        self._process.send_signal(signal.SIGCONT)
        self._process.terminate()
        assert self._process.wait(STOP_S) == 0, self.log.read_text(encoding="utf-8")
        self._process = None

    def kill(self):
        self._process.kill()
        self._process.wait(STOP_S)
        self._process = None

    def freeze(self):
        """Stop it: connections stay open, without responses."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self._process.send_signal(signal.SIGCONT)

    def recover(self):
        """Make it run again, killed or frozen."""
        if self._process is None:
            self.start()
        else:
            self.thaw()

    def decision(self, namespace, name):
        """The Board's entry; None if there is none, or if the daemon does not respond or, under overload, refuses."""
        try:
            response = requests.get(f"{self._url}/api/v1/board", timeout=2.0)
        except requests.RequestException:
            return None
        board = response.json()["workloads"] if response.ok else []
        keys = [(entry["workload"]["namespace"], entry["workload"]["name"]) for entry in board]
        return board[keys.index((namespace, name))] if (namespace, name) in keys else None

    def doctor(self):
        """The checks of `tidegate doctor` with this configuration."""
        command = [sys.executable, "-m", "scaler", "doctor", "-c", str(self._config), "-o", "json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=START_S, check=False)
        assert done.returncode in {0, 1}, done.stderr
        return json.loads(done.stdout)

    def logged(self, event):
        return log_lines(self.log, event)

    def _ready(self):
        try:
            return requests.get(f"{self._url}/readyz", timeout=2.0).ok
        except requests.RequestException:
            return False
