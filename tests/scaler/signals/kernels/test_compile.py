"""Kernels compile or load from the cache, and work without a usable cache."""

from __future__ import annotations

import ast
import errno
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import numba.core.caching
import numba.core.codegen
import numba.core.errors
import numpy as np
import pytest

import exporter
import scaler
from exporter import jit

SCALER = Path(scaler.__file__).parent

A_KERNEL = """
from scaler.jit import NUMBER, kernel

@kernel(NUMBER(NUMBER))
def double(x):
    return 2.0 * x
"""

# A kernel cached by plain numba fails here, else this test proves nothing; our kernels work.
ON_A_READ_ONLY_ROOT = """
import numba
try:
    numba.njit("float64(float64)", cache=True)(__import__("plain").double)
except RuntimeError as refusal:
    assert "no locator available" in str(refusal), refusal
else:
    raise SystemExit("this place can be written to")
import numpy as np
from scaler.signals.kernels import counter_rate
assert counter_rate.stats.cache_path is None
times, values, head = np.array([[1.0, 2.0]]), np.array([[5.0, 10.0]]), np.array([0])
print(counter_rate(times, values, head, np.array([10.0]), 3.0)[0])
"""

# The smallest full disk: files may be created, but no byte written to them.
ON_A_FULL_DISK = """
import resource
import numba
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
try:
    numba.njit("float64(float64)", cache=True)(__import__("plain").double)
except OSError:
    pass
else:
    raise SystemExit("this disk is not full")
import a_kernel
print(a_kernel.double(2.5))
"""


def run(script, folder, **environment):
    """Run `script` in a fresh interpreter that looks for modules in `folder` first."""
    keep = {key: value for key, value in os.environ.items() if not key.startswith(("NUMBA_", "XDG_", "PYTHON"))}
    done = subprocess.run(
        [sys.executable, "-B", "-c", script],
        cwd=folder,
        env=keep | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_kernels_work_without_a_writable_folder(tmp_path):
    """Root ignores permissions, so a file blocks each folder that numba would use."""
    (tmp_path / "scaler" / "signals").mkdir(parents=True)
    for name in ("__init__.py", "jit.py", "signals/__init__.py", "signals/kernels.py"):
        shutil.copy(SCALER / name, tmp_path / "scaler" / name)
    (tmp_path / "exporter").mkdir()
    shutil.copy(exporter.__file__, tmp_path / "exporter")
    for name in ("histogram.py", "model.py", "jit.py"):
        shutil.copy(Path(exporter.__file__).with_name(name), tmp_path / "exporter")
    (tmp_path / "plain.py").write_text("def double(x):\n    return 2.0 * x\n")
    for folder in (tmp_path, tmp_path / "scaler", tmp_path / "scaler" / "signals"):
        (folder / "__pycache__").write_text("in the way")
    nowhere = str(tmp_path / "plain.py" / "cache")
    result = run(ON_A_READ_ONLY_ROOT, tmp_path, NUMBA_CACHE_DIR=nowhere, XDG_CACHE_HOME=nowhere, HOME=nowhere)
    assert result == "5.0"


@pytest.mark.skipif(sys.platform == "win32", reason="resource limits are POSIX")
def test_full_disk_prevents_caching_but_not_compilation(tmp_path):
    (tmp_path / "plain.py").write_text("def double(x):\n    return 2.0 * x\n")
    shutil.copy(SCALER / "jit.py", tmp_path / "kernel_types.py")
    (tmp_path / "exporter").mkdir()
    for name in ("__init__.py", "jit.py"):
        shutil.copy(Path(exporter.__file__).with_name(name), tmp_path / "exporter")
    (tmp_path / "a_kernel.py").write_text(A_KERNEL.replace("scaler.jit", "kernel_types"))
    assert run(ON_A_FULL_DISK, tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "cache")) == "5.0"


IN_TWO = """
from exporter import jit
from scaler import compilation
compilation.compile_in_two(("here",), ("{there}",))
import there
print([(kernel.name, kernel.cached) for kernel in jit.loaded()], there.double(2.5))
"""


@pytest.mark.parametrize(("module", "cached"), [("there", True), ("no_such_module", False)])
def test_half_that_a_second_process_compiles_is_in_the_cache_and_else_is_compiled(tmp_path, module, cached):
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(A_KERNEL)
    source = Path(scaler.__file__).parent.parent
    result = run(
        IN_TWO.format(there=module),
        tmp_path,
        NUMBA_CACHE_DIR=str(tmp_path / "cache"),
        PYTHONPATH=f"{source}:{tmp_path}",
    )
    assert result == f"[('double', False), ('double', {cached})] 5.0"


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Loads a module of one kernel as a fresh start would, with its cache in `tmp_path/cache`."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    source = tmp_path / "a_kernel.py"
    source.write_text(A_KERNEL)

    def fresh():
        spec = importlib.util.spec_from_file_location("a_kernel", source)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return fresh


def test_second_start_compiles_nothing(load):
    assert load().double.stats.cache_hits == {}
    assert sum(load().double.stats.cache_hits.values()) == 1


def test_lazy_kernel_is_compiled_by_its_first_call_and_by_no_later_process(load, tmp_path):
    source = A_KERNEL.replace("import NUMBER, kernel", "import lazy_kernel").replace(
        "kernel(NUMBER(NUMBER))", "lazy_kernel"
    )
    (tmp_path / "a_kernel.py").write_text(source)
    first, second = load().double, load().double
    assert first.signatures == second.signatures == []
    assert first(2.5) == second(2.5) == 5.0
    assert sum(first.stats.cache_misses.values()) == sum(second.stats.cache_hits.values()) == 1


def contents(folder):
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


def test_cache_is_valid_for_any_modification_time_of_the_sources(load, tmp_path):
    load()
    os.utime(tmp_path / "a_kernel.py", (0, 0))
    assert sum(load().double.stats.cache_hits.values()) == 1


def test_read_only_cache_is_read(load, tmp_path, monkeypatch):
    load()
    before = contents(tmp_path / "cache")

    def refuse(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    # Permissions do not stop root.
    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    monkeypatch.setattr(numba.core.caching.IndexDataCacheFile, "_open_for_write", refuse)
    assert sum(load().double.stats.cache_hits.values()) == 1
    monkeypatch.setattr(numba.config, "CPU_NAME", "other-cpu")  # for another CPU it is compiled, and not cached
    monkeypatch.setattr(numba.core.codegen.CPUCodegen, "_get_host_cpu_name", lambda _: "other-cpu")
    other = load().double
    assert other(2.5) == 5.0
    assert other.stats.cache_hits == {}
    assert contents(tmp_path / "cache") == before


def test_compiled_and_cached_kernels_are_reported(load):
    count = len(jit.loaded())
    load()
    load()
    compiled, cached = jit.loaded()[count:]
    assert (compiled.name, compiled.cached, cached.cached) == ("double", False, True)
    assert compiled.seconds > 0.0


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
def test_damaged_cache_does_not_prevent_compilation(load, tmp_path, suffix):
    load()
    (damaged,) = (tmp_path / "cache").rglob(f"*.{suffix}")
    damaged.write_bytes(damaged.read_bytes()[:40])
    assert load().double(2.5) == 5.0


def test_error_in_a_kernel_is_still_raised(load, tmp_path):
    load()
    source = tmp_path / "a_kernel.py"
    source.write_text(A_KERNEL.replace("2.0 * x", "x + 'two'"))
    with pytest.raises(numba.TypingError):
        load()


@pytest.mark.parametrize("made", ["np.zeros(2)", "(x + 1.0)", "[x[0]]"])
def test_kernel_in_place_that_makes_an_array_is_refused(load, tmp_path, made):
    """It counts no references: what it made would never be freed, or too early."""
    source = A_KERNEL.replace("NUMBER, kernel", "FLOATS, NUMBER, in_place_kernel").replace(
        "kernel(NUMBER(NUMBER))", "in_place_kernel(NUMBER(FLOATS))"
    )
    (tmp_path / "a_kernel.py").write_text("import numpy as np" + source.replace("2.0 * x", "2.0 * x[1:][0]"))
    assert load().double(np.array([1.0, 2.0])) == 4.0
    # Of another length: byte code of a file of the same second and length would be taken for its own.
    (tmp_path / "a_kernel.py").write_text("import numpy as np" + source.replace("2.0 * x", f"0.0 + {made}[0]"))
    with pytest.raises(numba.core.errors.NumbaError):
        load()


def test_daemon_loads_no_kernel_before_it_listens():
    """KEDA's GetMetricSpec is answered while kernels are compiled."""
    code = "import scaler.daemon; from exporter import jit; print([kernel.name for kernel in jit.loaded()])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=SCALER.parent)
    assert done.stdout == "[]\n"


def test_kernel_calls_only_kernels_of_its_file():
    """numba's cache is stamped with one folder: a change of a callee elsewhere would not invalidate it."""
    nodes = ast.walk(ast.parse((SCALER / "signals" / "kernels.py").read_text()))
    modules = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    assert modules == {"__future__", "math", "exporter.model", "scaler.jit"}
