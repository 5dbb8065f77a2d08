"""Analysis of a model: counts and pictures of its parameters, sizes and weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from common.config import flag
from common.data.tasks import load_task
from common.errors import UserError
from common.store.files import file_sha256
from common.training.models import find_model, weights_file
from compression.analysis import glue_baselines, tensors
from compression.analysis.attention import attention_figure, attention_maps
from compression.analysis.packed_bytes import by_tensor, byte_groups, packed_bytes, sections_of_file
from compression.analysis.pictures import byte_treemap, parameter_pie, save_figure, weight_histograms
from compression.analysis.settings import BY_DEFAULT, AnalyzeSettings
from compression.evaluation.models import identity
from compression.evaluation.packed import find_packed, load_packed
from compression.evaluation.packed_scores import check_task
from compression.evaluation.sizes import gzip_bytes, measure, weights_bytes
from compression.evaluation.weights import parameters_by_part, stored_tensors, weights_of


def analyze(settings: AnalyzeSettings) -> dict[str, Any]:
    """Analyse a model. Writes pictures and returns the other results, one entry per flag.

    With json_, the result also has the size fields of results.json.
    Raises UserError if the model is missing, damaged, of another task or of another architecture.
    """
    if settings.is_baseline:
        return _analyze_baseline(settings)
    path = _packed_file(settings)
    return _analyze_model(settings) if path is None else _analyze_packed(settings, path)


def subject(settings: AnalyzeSettings) -> tuple[str, list[str]]:
    """Return the name of what is analysed, and what identifies it.

    This is the hash of a packed file or the key of a model; nothing for a published baseline.
    """
    if settings.is_baseline:
        return settings.arch or "", []
    path = _packed_file(settings)
    if path is not None:
        return path.stem, [file_sha256(path)]
    _, config = find_model(settings.paths, load_task(settings.task), settings.model_name or "")
    return config.name, [config.key]


def _packed_file(settings: AnalyzeSettings) -> Path | None:
    """Return the packed file to analyse, None for a model."""
    if not settings.bytes:
        return None
    return find_packed(settings.paths, load_task(settings.task), settings.model_name or "")


def _analyze_packed(settings: AnalyzeSettings, path: Path) -> dict[str, Any]:
    task, model = load_task(settings.task), load_packed(path)
    check_task(model, task, path)
    others = [name for name in settings.asked if name != "bytes"]
    if others:
        raise UserError(f"{flag(others[0])} needs a model's folder; for a packed file, only --bytes is available")
    sections, weights = sections_of_file(path)
    packed = by_tensor(sections, lambda name: weights.get(name, 0))
    result = {"task": task.name, "model": path.stem, "stage": "packed", "arch": model.arch, "bytes": packed}
    figure = byte_treemap(f"Bytes of {path.name}", byte_groups(packed))
    return result | _save(settings, path.stem, {"treemap": figure})


def _analyze_model(settings: AnalyzeSettings) -> dict[str, Any]:
    task = load_task(settings.task)
    folder, config = find_model(settings.paths, task, settings.model_name or "", settings.arch)
    stored = stored_tensors(folder)
    weights = weights_of(folder, config, stored)
    asked = settings.asked
    data = weights_bytes(folder, stored) if set(BY_DEFAULT) & set(asked) else b""
    result: dict[str, Any] = {**identity(task, None, config, folder), "arch": config.arch}
    if settings.json_:
        result |= measure(folder)
    if "model_size" in asked:
        result["model_size"] = tensors.count_model(data, stored, weights, config.kind)
    if "model_disk_size" in asked:
        path = weights_file(folder)
        result["model_disk_size"] = {"file": str(path), "bytes": path.stat().st_size, "bytes_model": len(data)}
    if "theoretical_size" in asked:
        result["theoretical_size"] = {"gzip": gzip_bytes(data), **tensors.sparse_sizes(weights)}
    if "weight_thresholds" in asked:
        result["weight_thresholds"] = tensors.below_thresholds(weights)
    if "named_params" in asked:
        result["named_params"] = tensors.listed(stored, config.kind)
    figures: dict[str, Any] = {}
    if "weight_hist" in asked:
        figures["weight_hist"] = weight_histograms(f"Weights of {config.name}", tensors.histograms(weights))
    if "pie_chart" in asked:
        figures["pie_chart"] = parameter_pie(f"Parameters of {config.name}", parameters_by_part(weights))
    if "attention" in asked:
        maps = attention_maps(folder, config, settings.attention, settings.cpu)
        figures["attention"] = attention_figure(maps)
    if "bytes" in asked:
        result["bytes"] = packed_bytes(folder, weights)
        figures["treemap"] = byte_treemap(f"Packed bytes of {config.name}", byte_groups(result["bytes"]))
    return result | _save(settings, config.name, figures)


def _analyze_baseline(settings: AnalyzeSettings) -> dict[str, Any]:
    task = load_task(settings.task)
    name = settings.arch or ""
    shapes = glue_baselines.glue_shapes(name, task.pair, task.outputs)
    listed = tensors.listed({key: torch.empty(shape, device="meta") for key, shape in shapes.items()}, "student")
    parts: dict[str, int] = {}
    for tensor in listed:
        parts[tensor["part"]] = parts.get(tensor["part"], 0) + tensor["count"]
    total = sum(parts.values())
    result: dict[str, Any] = {"task": task.name, "model": name, "arch": name, "parameters": total}
    if "model_size" in settings.asked:
        result["model_size"] = {
            "parts": {part: {"parameters": number} for part, number in parts.items()},
            "bytes": {"computed": sum(tensor["bytes"] for tensor in listed)},
            "thesis_megabytes": glue_baselines.QUOTED_MB[name, task.pair],
        }
    if "named_params" in settings.asked:
        result["named_params"] = listed
    figures = {"pie_chart": parameter_pie(f"Parameters of {name}", parts)} if "pie_chart" in settings.asked else {}
    return result | _save(settings, name, figures)


def picture_folder(settings: AnalyzeSettings, name: str) -> Path:
    """Return the folder for a model's pictures."""
    return settings.out or settings.paths.root / "analysis" / load_task(settings.task).name / name


def _save(settings: AnalyzeSettings, name: str, figures: dict[str, Any]) -> dict[str, list[str]]:
    """Write the figures of a model. Returns flag -> paths."""
    folder, formats = picture_folder(settings, name), ("png", "pdf") if settings.save_pdf else ("png",)
    return {kind: [str(path) for path in save_figure(f, folder, kind, formats)] for kind, f in figures.items()}
