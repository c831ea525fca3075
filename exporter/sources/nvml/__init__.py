"""The node's own GPUs, asked through NVIDIA's management library: for nodes without DCGM.

The library is handed in, and is an optional extra (`pip install 'tidegate[nvml]'`): `installed()` has it, or says in
words that it is missing. What comes out is a `Samples` table as any page of GPUs gives.

- `library`: NVML's names and return codes.      - `asking`: one question, and what a refusal costs.
- `cgroup`: whose a process is.                  - `holders`: whose a GPU is, by its processes.
- `gpm`: activity on Hopper and later.           - `gpus`: one GPU and its MIG instances as rows.
- `node`: all of them, once.                     - `source`: that from an event loop.

Worked example: `await Nvml(installed(), pods.get, timeout_s=5.0).samples(now)` on a node with one idle H100 is a
`Samples` of kind "nvml" with one row, or `Failure(REFUSED, "NVML: DRIVER_NOT_LOADED: …")`.
"""

from .library import Library, NotInstalled, installed
from .source import Nvml

__all__ = ["Library", "NotInstalled", "Nvml", "installed"]
