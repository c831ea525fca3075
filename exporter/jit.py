"""Compiles kernels: at import, for one signature, from a cache of machine code if there is one.

Importing a module of kernels is the compile step, so that no compiler runs later. The cache is a directory,
`NUMBA_CACHE_DIR`, and may be read-only: the image contains one, compiled for the CPU `generic` of its architecture
(`NUMBA_CPU_NAME`), because numba looks machine code up by the name and the features of the CPU. Without
`NUMBA_CACHE_DIR` numba chooses the directory. A cache that cannot be read or written, or is of other sources or another
CPU, costs the time to compile and nothing else.

Cached code is stamped with the text of all modules in the kernel's folder (numba's own stamp has one file): an upgrade
must not leave an old callee inside a new caller. So a kernel calls nothing in another folder.

Worked example: with `@kernel(float64(float64))` above `def double(x)`, importing the module appends
`Loaded("double", cached=True, seconds=0.002)` to `loaded()` if the cache had it.
"""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

from numba import config, njit
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.extending import register_jitable

Function = TypeVar("Function", bound=Callable[..., Any])


class Loaded(NamedTuple):
    """One kernel of this process. cached: its machine code came from the cache. folder: the cache's; None: none."""

    name: str
    cached: bool
    seconds: float
    folder: str | None = None


_LOADED: list[Loaded] = []


def loaded() -> tuple[Loaded, ...]:
    """The kernels that this process has compiled or loaded, in order."""
    return tuple(_LOADED)


def kernel(signature: Any, **options: Any) -> Callable[[Function], Function]:
    """Compiles a function for `signature`, without the GIL. options: of `njit`."""

    def compiled(function: Function) -> Function:
        began = perf_counter()
        dispatcher = lazy_kernel(function, **options)
        dispatcher.compile(signature)
        dispatcher.disable_compile()
        hits = sum(dispatcher.stats.cache_hits.values())
        folder = dispatcher.stats.cache_path
        _LOADED.append(Loaded(function.__qualname__, hits > 0, perf_counter() - began, folder))
        return dispatcher  # type: ignore[no-any-return]

    return compiled


def in_place_kernel(signature: Any, **options: Any) -> Callable[[Function], Function]:
    """The same for a function that makes no array, but may take views of its arguments; numba refuses any other.

    It counts no references. numba counts each view, and each array that a part takes, with an atomic addition: nine
    tenths of the time of a kernel of many small parts (`scaler.replay.engine`). The caller holds the arguments
    meanwhile.
    """
    return kernel(signature, _nrt=False, **options)


def part(function: Function, **options: Any) -> Function:
    """A part of kernels, not cached by itself. From Python it is the plain function. options: of `njit`.

    So numba builds no entry points from Python and C for it, which would take a third of the time to compile.
    """
    jitable: Callable[[Function], Function] = register_jitable(no_cfunc_wrapper=True, **options)
    return jitable(function)


def lazy_kernel(function: Function, **options: Any) -> Any:
    """Compiles a function at its first call, without the GIL, or takes it from the cache. options: of `njit`."""
    options["no_cfunc_wrapper"] = True  # nothing in C calls it
    dispatcher = njit(nogil=True, **options)(function)
    with suppress(Exception):  # no directory for a cache
        dispatcher._cache = _Cache(function)  # noqa: SLF001 - enable_caching() takes no cache of another class
    return dispatcher


def _directory() -> str:
    return config.CACHE_DIR  # type: ignore[attr-defined] # numba sets it from the environment


class _GivenDirectory(_CacheLocator):  # type: ignore[misc] # numba has no types
    """`NUMBA_CACHE_DIR`, also if it cannot be written to."""

    def __init__(self, py_func: Any, py_file: str) -> None:
        self._line = py_func.__code__.co_firstlineno
        self._path = Path(_directory(), self.get_suitable_cache_subpath(py_file))

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> _GivenDirectory | None:
        if not _directory() or not Path(py_file).exists():
            return None
        locator = cls(py_func, py_file)
        return locator if locator._path.is_dir() or locator._is_writable() else None

    def _is_writable(self) -> bool:
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=self._path).close()
        except OSError:
            return False
        return True

    def get_cache_path(self) -> str:
        return str(self._path)

    def get_source_stamp(self) -> str:
        return ""  # the cache has its own

    def get_disambiguator(self) -> str:
        return str(self._line)


class _Impl(CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = [_GivenDirectory, *CompileResultCacheImpl._locator_classes]  # type: ignore[assignment] # noqa: RUF012, SLF001


class _Cache(FunctionCache):  # type: ignore[misc]
    """Ignores errors: what cannot be read is compiled, what cannot be written is compiled again next time."""

    _impl_class = _Impl

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        # Of the bytes, not of the times: those change with the layers of an image.
        folder = sorted(Path(inspect.getfile(function)).parent.glob("*.py"))
        stamp = sha256(b"\0".join(each.read_bytes() for each in folder)).hexdigest()
        self._cache_file._source_stamp = stamp  # noqa: SLF001 - there is no other way to give one

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        with suppress(Exception):  # a damaged file is whatever pickle makes of it
            return super().load_overload(sig, target_context)
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        with suppress(Exception):  # read-only, full, or gone
            super().save_overload(sig, data)
