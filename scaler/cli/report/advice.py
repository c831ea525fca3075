"""Reads what advice needs (a config.json, the table of GPUs) and returns the sections of `scaler.report.advice`.

Worked example: `sections(AdviceRequest("config.json"), None)` has one section: the memory of the model on each GPU.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from scaler.config.errors import ConfigErrors
from scaler.policy.prices import PriceList
from scaler.report import advice
from scaler.report.architecture import parse as parse_architecture
from scaler.report.gpus import GpuModel
from scaler.report.gpus import parse as parse_gpus
from scaler.report.hf_config import UnknownArchitecture
from scaler.report.mig import MigModel, base, find
from scaler.report.profile import of_document
from scaler.report.slice_speed import SpeedEvidence, validate
from scaler.report.statement import ReportSection

from .run import BadReportRequest

SPEED_COLUMNS = ("workload", "on", "speed")
QUANTIZATION_FILE = "hf_quant_config.json"  # beside config.json, of checkpoints of NVIDIA's ModelOpt


@dataclass(frozen=True, slots=True)
class AdviceRequest:
    """The options of the command. model: a config.json. gpu: that the workloads run on. gpus: a file with more GPUs.

    itl_s: the SLO, seconds between two tokens. training_gpus: data-parallel ones. speeds: a CSV of measured speeds.
    """

    model: str | None = None
    gpu: str | None = None
    gpus: str | None = None
    tensor_parallel: int = 1
    kv_precision: str | None = None
    max_model_len: int | None = None
    itl_s: float | None = None
    training_gpus: int | None = None
    speeds: str | None = None


def sections(request: AdviceRequest, report: Mapping[str, Any] | None) -> list[ReportSection]:
    """The advice for a report of one or more workloads, or without one. Raises BadReportRequest."""
    profiles = [of_document(each) for each in report["profiles"]] if report is not None else []
    mig = find(request.gpu) if request.gpu is not None else None
    found: list[ReportSection] = []
    memory: list[float] = []
    deployment = None
    models = _gpu_models(request.gpus) if request.model is not None else {}
    try:
        if request.model is not None:
            deployment = advice.Deployment(
                _architecture(Path(request.model)),
                request.gpu or "",
                request.tensor_parallel,
                request.kv_precision,
                request.max_model_len,
                request.itl_s,
            )
            found.append(advice.memory_section(deployment, models, PriceList()))
            if request.training_gpus is not None:
                found.append(advice.training_section(deployment.model, request.training_gpus, models))
            if request.gpu is not None:
                found += [advice.gpu_section(profile, deployment, models, PriceList()) for profile in profiles]
                memory = [advice.needed_bytes(deployment, profile) for profile in profiles]
        if any(profile.engine is not None for profile in profiles):
            found.append(advice.engine_section(profiles, deployment, models))
    except UnknownArchitecture as error:
        raise BadReportRequest(str(error)) from None
    if request.speeds is not None and mig is None:
        raise BadReportRequest(f"--speeds: --gpu must be a model with MIG, got {request.gpu}")
    if mig is not None and profiles:
        names = [str(profile.workload) for profile in profiles]
        given = {} if request.speeds is None else _measured_speeds(Path(request.speeds), mig, names)
        found.append(advice.slice_section(profiles, mig, memory=memory, given=given))
    return found


def _measured_speeds(path: Path, mig: MigModel, names: Sequence[str]) -> dict[str, SpeedEvidence]:
    """Speeds by workload, from a CSV with SPEED_COLUMNS. on: a MIG profile, or a percentage of MPS. speed: relative to
    the whole GPU.
    """
    found: dict[str, tuple[dict[str, float], dict[int, float]]] = {}
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file, strict=True)
            if not set(SPEED_COLUMNS) <= set(rows.fieldnames or ()):
                raise BadReportRequest(f"{path}:1: columns must be {', '.join(SPEED_COLUMNS)}")
            for row in rows:
                line, (workload, on, speed) = f"{path}:{rows.line_num}", (row[name] or "" for name in SPEED_COLUMNS)
                slices, mps = found.setdefault(workload, ({}, {}))
                percentage = on.endswith("%") and on[:-1].strip().isdecimal()
                speeds: dict[Any, float] = mps if percentage else slices
                speeds[int(on[:-1]) if percentage else base(on)] = _speed(speed, line)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadReportRequest(f"{path}: {error}") from None
    given = {workload: SpeedEvidence(slices, mps=mps) for workload, (slices, mps) in found.items()}
    for workload, evidence in given.items():
        if workload not in names:
            raise BadReportRequest(f"{path}: workload: must be one of {', '.join(names)}, got {workload!r}")
        try:
            validate(mig, evidence)
        except ValueError as error:
            raise BadReportRequest(f"{path}: {workload}: {error}") from None
    return given


def _speed(text: str, line: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadReportRequest(f"{line}: speed: must be a number, got {text!r}") from None


def _architecture(path: Path) -> Any:
    document, beside = _read_json(path), path.with_name(QUANTIZATION_FILE)
    return parse_architecture(document, _read_json(beside) if beside.exists() else None)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise BadReportRequest(f"{path}: {error}") from None
    if not isinstance(document, dict):
        raise BadReportRequest(f"{path}: must be a JSON object")
    return document


def _gpu_models(file: str | None) -> dict[str, GpuModel]:
    shipped = resources.files("scaler.report").joinpath("gpus.yaml").read_text(encoding="utf-8")
    models = parse_gpus(shipped, "gpus.yaml")
    if file is None:
        return models
    try:
        return models | parse_gpus(Path(file).read_text(encoding="utf-8"), file)
    except (OSError, UnicodeDecodeError) as error:
        raise BadReportRequest(f"{file}: {error}") from None
    except ConfigErrors as errors:
        raise BadReportRequest(str(errors)) from None
