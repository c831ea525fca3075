"""Whether a file is another than it was.

kubelet puts a new version of a mounted ConfigMap into a new directory and turns the link `..data` to it, so the file
of the same name is another file from one moment to the next. An editor writes in pieces, so a file counts as changed
once it has stood still for one look.

Worked example: looks every 2 s at a file that is saved at 3 s: unchanged at 2, new at 4 but perhaps half of it,
`changed` at 6.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

Stamp = tuple[int, int, int]


@dataclass(slots=True)
class FileWatch:
    """Looks at one file, through links. It counts as read when the watch is made."""

    path: Path
    _read: Stamp | None = field(init=False)
    _last: Stamp | None = field(init=False)

    def __post_init__(self) -> None:
        self._read = self._last = _stamp(self.path)

    def changed(self) -> bool:
        """Is it another than when this was last true, and the same as at the last look? A file that is gone is not."""
        before, self._last = self._last, _stamp(self.path)
        if self._last is None or self._last != before or self._last == self._read:
            return False
        self._read = self._last
        return True


def _stamp(path: Path) -> Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
