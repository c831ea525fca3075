"""Estimates the GPU memory of training: weights, gradients and optimiser states, by ZeRO stage, and with LoRA.

Among the data-parallel GPUs ZeRO divides the optimiser states (stage 1), the gradients too (2), the weights too (3).
Activations depend on the recipe (checkpointing, sequence length, fused kernels) and are not part of the result.

Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020, section 3.1
and figure 1: mixed precision with Adam takes 2 + 2 + 12 bytes per parameter.

Worked example: 7.5 billion parameters on 64 GPUs take 120 GB on each at stage 0, 31.4 GB at stage 1, 16.6 GB at stage 2
and 1.9 GB at stage 3, as in the paper's figure 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from .architecture import Architecture
from .weights import Matrix, count_parameters, element_bytes, matrices, resolve_precision, weight_bytes


class ZeroStage(IntEnum):
    """What is divided among data-parallel GPUs: nothing, optimiser states, also gradients, also weights."""

    NOTHING = 0
    OPTIMIZER = 1
    GRADIENTS = 2
    WEIGHTS = 3


# Bytes per trained parameter. Adam keeps a 32-bit copy of the weights and two moments; the 8-bit kind keeps the moments
# in 8 bits; SGD keeps the copy and, with momentum, one moment.
OPTIMIZER_BYTES = {"adam": 12.0, "adam8bit": 6.0, "sgd_momentum": 8.0, "sgd": 4.0}


@dataclass(frozen=True, slots=True)
class TrainingMemory:
    """Bytes on one GPU. Activations are not known and not part of it."""

    weights: float
    gradients: float
    optimizer: float

    @property
    def total(self) -> float:
        return self.weights + self.gradients + self.optimizer


def full(
    parameters: float,
    *,
    gpus: int = 1,
    stage: ZeroStage = ZeroStage.NOTHING,
    optimizer: str = "adam",
    weight_bytes_each: float = 2.0,
) -> TrainingMemory:
    """Returns the memory of training all parameters in mixed precision on `gpus` data-parallel GPUs.

    weight_bytes_each: of a weight and of its gradient. Raises KeyError if the optimiser is not in OPTIMIZER_BYTES.
    """
    return TrainingMemory(
        weights=_divided(parameters * weight_bytes_each, gpus, stage >= ZeroStage.WEIGHTS),
        gradients=_divided(parameters * weight_bytes_each, gpus, stage >= ZeroStage.GRADIENTS),
        optimizer=_divided(parameters * OPTIMIZER_BYTES[optimizer], gpus, stage >= ZeroStage.OPTIMIZER),
    )


def full_of(
    arch: Architecture,
    *,
    gpus: int = 1,
    stage: ZeroStage = ZeroStage.NOTHING,
    optimizer: str = "adam",
    precision: str | None = None,
) -> TrainingMemory:
    """Returns the memory of training all parameters of an architecture. Raises UnknownArchitecture if the precision of
    its weights is not known.
    """
    size = element_bytes(resolve_precision(arch, precision))
    return full(count_parameters(arch), gpus=gpus, stage=stage, optimizer=optimizer, weight_bytes_each=size)


def lora(
    arch: Architecture,
    rank: int,
    *,
    targets: tuple[str, ...] = ("q_proj", "v_proj"),
    gpus: int = 1,
    stage: ZeroStage = ZeroStage.NOTHING,
    optimizer: str = "adam",
    precision: str | None = None,
) -> TrainingMemory:
    """Returns the memory of training LoRA adapters of a rank beside frozen weights, quantised ones included (QLoRA).

    targets: the last names of the modules that get adapters: rank x (inputs + outputs) parameters each.
    """
    trained = count_adapter_parameters(arch, rank, targets)
    adapters = full(trained, gpus=gpus, stage=stage, optimizer=optimizer)
    frozen = _divided(weight_bytes(arch, precision=precision), gpus, stage >= ZeroStage.WEIGHTS)
    return TrainingMemory(frozen + adapters.weights, adapters.gradients, adapters.optimizer)


def count_adapter_parameters(arch: Architecture, rank: int, targets: tuple[str, ...]) -> int:
    """Returns the parameters of LoRA adapters; 0 if no module has one of the names."""
    return sum(
        rank * (matrix.rows + matrix.columns) * matrix.alike for matrix in matrices(arch) if _is_target(matrix, targets)
    )


def _is_target(matrix: Matrix, targets: tuple[str, ...]) -> bool:
    return matrix.linear and matrix.columns > 1 and matrix.module.rpartition(".")[2] in targets


def _divided(total: float, gpus: int, is_divided: bool) -> float:
    return total / gpus if is_divided else total
