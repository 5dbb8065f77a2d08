"""The work of analyze.py: what a model consists of, counted and drawn from its weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pydantic

from common.config import flag
from common.data.tasks import load_task
from common.store.settings import StageSettings
from compression.analysis import glue_baselines
from compression.evaluation.evaluate import identity

NUMBERS = ("model_size", "model_disk_size", "theoretical_size", "weight_thresholds", "named_params", "bytes")
PICTURES = ("weight_hist", "pie_chart")
BY_DEFAULT = ("model_size", "model_disk_size", "theoretical_size")
OF_BASELINES = ("model_size", "named_params", "pie_chart")
"""What there is of a GLUE baseline, which is counted but has no weights."""


class AnalyzeSettings(StageSettings):
    """Analysis (the thesis's table C.5, and more)."""

    most_used = ("task", "model_name", "model_size", "theoretical_size", "pie_chart", "bytes", "json_")

    model_name: str | None = None
    """Model to analyse: its name in the workspace, or the path of its folder. Not for the GLUE baselines."""
    arch: str | None = None
    """Check that the model has this architecture; or glue-glove or glue-elmo, to count the thesis's GLUE baselines."""
    model_size: bool = False
    """Count parameters by part and by type, and the size they make."""
    model_disk_size: bool = False
    """Size of the weights file."""
    theoretical_size: bool = False
    """Size of the weights file gzipped, and of its tensors in sparse coordinate form (equation 6.5)."""
    weight_hist: bool = False
    """Draw a histogram of the weights of each part."""
    weight_thresholds: bool = False
    """Count each tensor's weights below magnitudes from 0.001 to 0.5."""
    named_params: bool = False
    """List every stored tensor: name, shape, type, count, bytes."""
    pie_chart: bool = False
    """Draw the share of parameters of each major part."""
    bytes: bool = False
    """List and draw where the bytes of a student's packed file go, tensor by tensor."""
    save_pdf: bool = False
    """Save pictures as PDF too."""
    out: Path | None = None
    """Folder for pictures; unset: <workspace>/analysis/<task>/<model>."""
    json_: bool = False
    """Print everything as one JSON object to stdout."""

    @pydantic.model_validator(mode="after")
    def _check(self) -> AnalyzeSettings:
        if self.save_pdf and not (self.weight_hist or self.pie_chart or self.bytes):
            raise ValueError("--save-pdf saves pictures: ask for --weight-hist, --pie-chart or --bytes too")
        if not self.is_baseline:
            if self.model_name is None:
                raise ValueError(f"--model-name is required, except with --arch {' or '.join(glue_baselines.NAMES)}")
            return self
        if self.model_name is not None:
            raise ValueError(f"--arch {self.arch} is a published baseline, not a saved model: leave --model-name out")
        impossible = [name for name in self.asked if name not in OF_BASELINES]
        if impossible:
            known = ", ".join(flag(name) for name in OF_BASELINES)
            raise ValueError(f"{flag(impossible[0])} needs weights; of --arch {self.arch} there are only {known}")
        return self

    @property
    def is_baseline(self) -> bool:
        """Whether to count a GLUE baseline."""
        return self.arch in glue_baselines.NAMES

    @property
    def asked(self) -> tuple[str, ...]:
        """What to print and draw: the flags given, or else sizes."""
        given = tuple(name for name in (*NUMBERS, *PICTURES) if getattr(self, name))
        return given or (("model_size",) if self.is_baseline else BY_DEFAULT)


def analyze(settings: AnalyzeSettings) -> dict[str, Any]:
    """Analyse a model; pictures are written, the rest is returned: one entry a flag.

    With json_ the result has the size fields of results.json too.
    Raises UserError when the model is missing, damaged, of another task or of another architecture.
    """
    return _analyze_baseline(settings) if settings.is_baseline else _analyze_model(settings)


def _analyze_model(settings: AnalyzeSettings) -> dict[str, Any]:
    from common.training.models import find_model, weights_file
    from compression.analysis import tensors as inspect
    from compression.evaluation.sizes import gzip_bytes, measure
    from compression.evaluation.weights import parameters_by_part, stored_tensors, weights_of

    task = load_task(settings.task)
    folder, config = find_model(settings.paths, task, settings.model_name or "", settings.arch)
    path, stored = weights_file(folder), stored_tensors(folder)
    weights = weights_of(folder, config, stored)
    asked = settings.asked
    result: dict[str, Any] = {**identity(task, None, config, folder), "arch": config.arch}
    if settings.json_:
        result |= measure(folder)
    if "model_size" in asked:
        result["model_size"] = inspect.count_model(path, stored, weights, config.kind)
    if "model_disk_size" in asked:
        result["model_disk_size"] = {"file": str(path), "bytes": path.stat().st_size}
    if "theoretical_size" in asked:
        result["theoretical_size"] = {"gzip": gzip_bytes(path.read_bytes()), **inspect.sparse_sizes(weights)}
    if "weight_thresholds" in asked:
        result["weight_thresholds"] = inspect.below_thresholds(weights)
    if "named_params" in asked:
        result["named_params"] = inspect.listed(stored, config.kind)
    figures: dict[str, Any] = {}
    if "weight_hist" in asked:
        from compression.analysis.pictures import weight_histograms

        figures["weight_hist"] = weight_histograms(f"Weights of {config.name}", inspect.histograms(weights))
    if "pie_chart" in asked:
        figures["pie_chart"] = _pie(config.name, parameters_by_part(weights))
    if "bytes" in asked:
        from compression.analysis.packed_bytes import byte_groups, packed_bytes
        from compression.analysis.treemap import byte_treemap

        result["bytes"] = packed_bytes(folder, weights)
        figures["treemap"] = byte_treemap(f"Packed bytes of {config.name}", byte_groups(result["bytes"]))
    return result | _save(settings, picture_folder(settings, config.name), figures)


def _analyze_baseline(settings: AnalyzeSettings) -> dict[str, Any]:
    task = load_task(settings.task)
    name = settings.arch or ""
    shapes = glue_baselines.glue_shapes(name, task.pair, task.outputs)
    parts = glue_baselines.count(shapes)
    total = sum(parts.values())
    result: dict[str, Any] = {"task": task.name, "model": name, "arch": name, "parameters": total}
    if "model_size" in settings.asked:
        result["model_size"] = {
            "parts": {part: {"parameters": number} for part, number in parts.items()},
            "bytes": {"computed": total * glue_baselines.BYTES_PER_WEIGHT},
            "thesis_megabytes": glue_baselines.QUOTED_MB[name, task.pair],
        }
    if "named_params" in settings.asked:
        result["named_params"] = glue_baselines.listed(shapes)
    figures = {"pie_chart": _pie(name, parts)} if "pie_chart" in settings.asked else {}
    return result | _save(settings, picture_folder(settings, name), figures)


def _pie(name: str, parts: dict[str, int]) -> Any:
    from compression.analysis.pictures import parameter_pie

    return parameter_pie(f"Parameters of {name}", parts)


def picture_folder(settings: AnalyzeSettings, name: str) -> Path:
    """Return the folder of a model's pictures."""
    return settings.out or settings.paths.root / "analysis" / load_task(settings.task).name / name


def _save(settings: AnalyzeSettings, folder: Path, figures: dict[str, Any]) -> dict[str, list[str]]:
    """Write the figures. Returns flag -> paths."""
    if not figures:
        return {}
    from compression.analysis.pictures import save_figure

    formats = ("png", "pdf") if settings.save_pdf else ("png",)
    return {kind: [str(path) for path in save_figure(f, folder, kind, formats)] for kind, f in figures.items()}
