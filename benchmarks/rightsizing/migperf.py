"""Reads the throughputs that MIGPerf printed on its figures: inference and fine-tuning on slices of an A100-40GB.

Data: github.com/MLSysOps/MIGProfiler (MIT licence; Zhang et al., 2023), `assets/pictures/**/*_throughput_*.svg`. Each
bar has its value as a comment of the SVG: the axis' values, then the throughputs of 1g.5gb, 2g.10gb, 3g.20gb and
7g.40gb; 0 where the job did not fit. Five language models at 9 batch sizes and 5 sequence lengths, ViT-B/16 and MoCo
ResNet-50 at 5 batch sizes. Models of one architecture are nearly the same, so the jobs are fewer than they look.

Worked example: of `bert-base_throughput_bsz_compare.svg` the batch of 64 has 630, 1286, 2203 and 4833 per second, so
its speeds are 0.130, 0.266 and 0.456.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np

REPOSITORY = "https://github.com/MLSysOps/MIGProfiler"
PROFILES = ("1g.5gb", "2g.10gb", "3g.20gb")
_TITLE = "throughput(/s)"


def fetch(folder: Path) -> None:
    """Clones the repository (MIT licence) into `folder`."""
    subprocess.run(["git", "clone", "--depth", "1", REPOSITORY, str(folder)], check=True)


def cells(folder: Path) -> dict[str, dict[str, float]]:
    """Speed by job and profile; a profile that the job does not fit is absent."""
    speeds: dict[str, dict[str, float]] = {}
    for path in sorted((folder / "assets/pictures").rglob("*_throughput_*.svg")):
        texts = re.findall(r"<!-- (.*) -->", path.read_text())
        axis = next((index for index, text in enumerate(texts) if text in {"batch size", "sequence length"}), None)
        if axis is None:  # a figure that compares models: its numbers are in the others
            continue
        values, start = texts[:axis], texts.index(_TITLE) + 1
        count = (len(PROFILES) + 1) * len(values)
        bars = np.array([float(text) for text in texts[start : start + count]]).reshape(-1, len(values))
        for value, (*slices, whole) in zip(values, bars.T, strict=True):
            if whole > 0.0:
                job = f"{path.stem.split('_throughput')[0]} {texts[axis]} {value}"
                speeds[job] = {
                    name: float(each / whole) for name, each in zip(PROFILES, slices, strict=True) if each > 0.0
                }
    return speeds
