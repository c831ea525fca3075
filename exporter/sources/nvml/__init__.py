"""Reads the node's own GPUs through NVIDIA's management library (NVML), for nodes without DCGM.

The library is an optional extra (`pip install 'tidegate[nvml]'`): `installed()` returns it, or raises NotInstalled. The
result is a `Samples` table as of any GPU page.

- `library`: names, return codes and calls of NVML.     - `processes`: the pods that use a GPU.
- `device`: one GPU and its MIG instances as rows.      - `client`: all GPUs, from an event loop.

Worked example: `await Nvml(installed(), pods.get, timeout_s=5.0).samples(now)` on a node with one idle H100 returns
`Samples` of kind "nvml" with one row, or `Failure(REFUSED, "NVML: DRIVER_NOT_LOADED: …")`.
"""

from .client import Nvml
from .library import Library, NotInstalled, installed

__all__ = ["Library", "NotInstalled", "Nvml", "installed"]
