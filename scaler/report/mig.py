"""Lists the MIG profiles of each GPU model and enumerates the valid partitions of a GPU.

A GPU has memory slices, numbered from 0, and compute slices. An instance of a profile occupies `memory` neighbouring
memory slices from one of its `starts`. A partition is a set of placed instances that do not overlap and have no more
compute slices together than the GPU. It is complete if no further instance fits.

Sources. Profiles, fractions and numbers of instances: NVIDIA MIG User Guide, "Supported MIG Profiles"
(docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html), one table per GPU. Starts: the guide,
"Getting Started with MIG", where `nvidia-smi mig -lgipp` prints for an A100 `{0,1,2,3,4,5,6}:1`, `{0,2,4,6}:2`,
`{0,2,4}:2`, `{0,4}:4`, `{0}:4` and `{0}:8`; public outputs of an H100 80GB and an H100 NVL are the same. H200 and B200
have the same table of fractions and counts, and get the same starts. A30: NVIDIA/go-nvml, `pkg/nvml/mock/gpus/a30.go`.
SMs and memory: `nvidia-smi mig -lgip` as public pages print it (go-nvml's `a100.go` and `a30.go`; NVIDIA/mig-parted#120
for H200, #187 for B200, the smaller one where drivers differ, by up to 7 %). B200: the 4g and 3g are not in that
excerpt; they have at least the memory of two 2g and the SMs of their 1g, and 7g is taken as four 2g and the GPU's 148
SMs. SMs are not proportional to compute slices on Hopper and Blackwell: 1g.20gb has 26, 3g.40gb 60 of 132.

**Media extensions.** One instance of a GPU may have them (`1g.5gb+me`; on an A30 `2g.12gb+me` too). It is placed like
its base profile and has the same slices and memory. So `+me` changes no partition: `media` is the number of instances
of a profile that may have it, and `base` finds the base profile of a name.

Worked example: the left half of an A100-40GB can be 4g, 3g, 2g+2g, 2g+1g+1g, 1g+1g+2g or 1g+1g+1g+1g, the right half
3g, 2g+1g or 1g+1g+1g. With 7g that makes 6 * 3 + 1 = 19 complete partitions without `1g.10gb`. As compositions, without
positions, they are 14: the 13 of MISO (SoCC 2022, `partition_code.json`, 18 entries with positions) and 4g+3g, which it
leaves out. With `1g.10gb` there are 78, and 28 compositions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

GIB = 2**30
_ANYWHERE, _EVEN, _PAIRS, _HALVES, _LEFT = (0, 1, 2, 3, 4, 5, 6), (0, 2, 4, 6), (0, 2, 4), (0, 4), (0,)


class SliceProfile(NamedTuple):
    """One profile of a GPU model.

    compute, memory: slices. sms: streaming multiprocessors. size: bytes of memory.
    starts: first memory slices that an instance may have. media: instances that may have media extensions.
    """

    name: str
    compute: int
    memory: int
    sms: int
    size: int
    starts: tuple[int, ...]
    media: int = 0


class MigModel(NamedTuple):
    """A GPU model with its profiles, the whole GPU first. keywords: parts of the names that NVML has for it."""

    name: str
    keywords: tuple[str, ...]
    profiles: tuple[SliceProfile, ...]

    @property
    def whole(self) -> SliceProfile:
        return self.profiles[0]


class PlacedInstance(NamedTuple):
    """An instance: the index of its profile in `MigModel.profiles`, and its first memory slice."""

    profile: int
    start: int


def _seven(
    name: str, keywords: tuple[str, ...], names: str, sizes: tuple[float, ...], sms: tuple[int, ...]
) -> MigModel:
    """A model of seven compute and eight memory slices. names, sizes, sms: of 7g, 4g, 3g, 2g, 1g with double memory
    and 1g.
    """
    slices = ((7, 8, _LEFT), (4, 4, _LEFT), (3, 4, _HALVES), (2, 2, _PAIRS), (1, 2, _EVEN), (1, 1, _ANYWHERE))
    rows = zip(names.split(), slices, sms, sizes, (0, 0, 0, 0, 0, 1), strict=True)
    profiles = tuple(
        SliceProfile(profile, compute, memory, count, int(size * GIB), starts, media)
        for profile, (compute, memory, starts), count, size, media in rows
    )
    return MigModel(name, keywords, profiles)


_A100_SMS, _HOPPER_SMS = (98, 56, 42, 28, 14, 14), (132, 64, 60, 32, 26, 16)
MODELS = (
    MigModel(
        "A30",
        ("A30",),
        (
            SliceProfile("4g.24gb", 4, 4, 56, int(23.44 * GIB), _LEFT),
            SliceProfile("2g.12gb", 2, 2, 28, int(11.69 * GIB), (0, 2), media=1),
            SliceProfile("1g.6gb", 1, 1, 14, int(5.81 * GIB), (0, 1, 2, 3), media=1),
        ),
    ),
    _seven(
        "A100-40GB",
        ("A100", "40GB"),
        "7g.40gb 4g.20gb 3g.20gb 2g.10gb 1g.10gb 1g.5gb",
        (39.25, 19.5, 19.5, 9.625, 9.625, 4.75),
        _A100_SMS,
    ),
    _seven(
        "A100-80GB",
        ("A100", "80GB"),
        "7g.80gb 4g.40gb 3g.40gb 2g.20gb 1g.20gb 1g.10gb",
        (78.5, 39.25, 39.25, 19.5, 19.5, 9.625),
        _A100_SMS,
    ),
    _seven(
        "H100-80GB",
        ("H100", "80GB"),
        "7g.80gb 4g.40gb 3g.40gb 2g.20gb 1g.20gb 1g.10gb",
        (79.25, 39.5, 39.5, 19.62, 19.62, 9.75),
        _HOPPER_SMS,
    ),
    _seven(
        "H100-96GB",
        ("GH200", "480GB"),  # NVML names the H100 of a GH200 after the memory of its CPU
        "7g.96gb 4g.48gb 3g.48gb 2g.24gb 1g.24gb 1g.12gb",
        (93.0, 46.5, 46.5, 23.0, 23.0, 11.0),
        _HOPPER_SMS,
    ),
    _seven(
        "H200",
        ("H200",),
        "7g.141gb 4g.71gb 3g.71gb 2g.35gb 1g.35gb 1g.18gb",
        (140.0, 69.5, 69.5, 32.25, 32.25, 16.0),
        _HOPPER_SMS,
    ),
    _seven(
        "B200",
        ("B200",),
        "7g.180gb 4g.90gb 3g.90gb 2g.45gb 1g.45gb 1g.23gb",
        (177.0, 88.5, 88.5, 44.25, 44.25, 20.5),
        (148, 72, 54, 36, 30, 18),
    ),
)


def find(gpu: str) -> MigModel | None:
    """The model of a GPU by its name here or in NVML and DCGM; None if it is not listed.

    NVML: `NVIDIA A100-SXM4-40GB` has the words A100 and 40GB. Of several matches the one with most keywords wins.
    """
    parts = set(gpu.upper().replace("-", " ").split())
    matches = [model for model in MODELS if gpu == model.name or parts.issuperset(model.keywords)]
    return max(matches, key=lambda model: len(model.keywords), default=None)


def base(profile: str) -> str:
    """The profile that a name with media extensions is placed like: `1g.5gb+me` is placed like `1g.5gb`."""
    return profile.removesuffix("+me")


def partitions(model: MigModel) -> tuple[tuple[PlacedInstance, ...], ...]:
    """Every valid partition with at least one instance, complete or not, each ordered by first memory slice."""
    return tuple(partition for partition in _extensions(model, (), 0) if partition)


def complete_partitions(model: MigModel) -> tuple[tuple[PlacedInstance, ...], ...]:
    """The valid partitions to which no instance can be added."""
    valid = partitions(model)
    smaller = {frozenset(each) - {instance} for each in valid for instance in each}
    return tuple(each for each in valid if frozenset(each) not in smaller)


@lru_cache(maxsize=len(MODELS))
def compositions(model: MigModel) -> tuple[tuple[int, ...], ...]:
    """The complete partitions without positions: instances of each profile, without repetitions. Shape (n, profiles).

    A composition is left out if another one has the same instances and more.
    """
    counts = {
        tuple(Counter(instance.profile for instance in each)[index] for index in range(len(model.profiles)))
        for each in complete_partitions(model)
    }
    return tuple(sorted((each for each in counts if not any(_contains(other, each) for other in counts)), reverse=True))


def name(model: MigModel, composition: tuple[int, ...]) -> str:
    """A composition as people write it: `3g.20gb + 2 x 2g.10gb`."""
    pairs = zip(composition, model.profiles, strict=True)
    return " + ".join(f"{count} x {each.name}" if count > 1 else each.name for count, each in pairs if count)


def _contains(larger: tuple[int, ...], smaller: tuple[int, ...]) -> bool:
    return larger != smaller and all(one >= other for one, other in zip(larger, smaller, strict=True))


def _extensions(
    model: MigModel, placed: tuple[PlacedInstance, ...], first: int
) -> Iterator[tuple[PlacedInstance, ...]]:
    """`placed`, and all that add instances at memory slices from `first` on."""
    yield placed
    used = sum(model.profiles[instance.profile].compute for instance in placed)
    for index, profile in enumerate(model.profiles):
        if used + profile.compute > model.whole.compute:
            continue
        for start in profile.starts:
            if start >= first and start + profile.memory <= model.whole.memory:
                yield from _extensions(model, (*placed, PlacedInstance(index, start)), start + profile.memory)
