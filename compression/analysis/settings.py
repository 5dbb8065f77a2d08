"""Settings of analyze.py."""

from __future__ import annotations

from pathlib import Path

import pydantic

from common.config import OneOrMore, Uses, flag
from common.store.settings import StageSettings
from compression.analysis import glue_baselines

NUMBERS = ("model_size", "model_disk_size", "theoretical_size", "weight_thresholds", "named_params", "bytes")
PICTURES = ("weight_hist", "pie_chart", "attention")
BY_DEFAULT = ("model_size", "model_disk_size", "theoretical_size")
_DRAWING = "--weight-hist, --pie-chart, --attention or --bytes"
OF_BASELINES = ("model_size", "named_params", "pie_chart")
"""Analyses of a GLUE baseline, whose parameters are counted although it has no weights."""


class AnalyzeSettings(StageSettings):
    """Analysis (the thesis's table C.5, and more)."""

    most_used = ("task", "model_name", "model_size", "theoretical_size", "pie_chart", "bytes", "json_")

    model_name: str | None = None
    """Model to analyse: its name in the workspace, or the path of its folder; with --bytes also a packed file (.fwt),
    or a name of the zoo (sst-2-12k). Not for the GLUE baselines."""
    arch: str | None = None
    """Check that the model has this architecture; or glue-glove or glue-elmo, to count the thesis's GLUE baselines."""
    model_size: bool = False
    """Count parameters by part and by type, and show their total size."""
    model_disk_size: bool = False
    """Size of the weights file; for adapters in a separate file, also that of one file with all weights."""
    theoretical_size: bool = False
    """Size of all weights in one file, gzipped, and of its tensors in sparse coordinate form (equation 6.5)."""
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
    attention: OneOrMore[str] = ()
    """Draw the attention maps of this text, or of both texts of a pair: of a teacher, or of a transformer student next
    to its teacher's layers."""
    save_pdf: bool = False
    """Save pictures as PDF too."""
    out: Path | None = None
    """Folder for pictures; unset: <workspace>/analysis/<task>/<model>."""
    json_: bool = False
    """Print everything as one JSON object to stdout."""

    @pydantic.model_validator(mode="after")
    def _check(self) -> AnalyzeSettings:
        if self.save_pdf and not self._draws:
            raise ValueError(f"--save-pdf has no effect without a picture: give {_DRAWING} too")
        if not self.is_baseline:
            if self.model_name is None:
                raise ValueError(f"--model-name is required, except with --arch {' or '.join(glue_baselines.NAMES)}")
            return self
        if self.model_name is not None:
            raise ValueError(f"--arch {self.arch} is a published baseline, not a saved model: leave --model-name out")
        impossible = [name for name in self.asked if name not in OF_BASELINES]
        if impossible:
            known = ", ".join(flag(name) for name in OF_BASELINES)
            raise ValueError(f"{flag(impossible[0])} needs weights; for --arch {self.arch}, only {known} are available")
        return self

    def _uses(self) -> Uses:
        yield self._draws, ["out"], f"without {_DRAWING}"
        yield self.attention, ["cpu"], "without --attention"
        yield False, ["seed"], "on an analysis, which draws nothing"

    @property
    def _draws(self) -> bool:
        return any(getattr(self, name) for name in (*PICTURES, "bytes"))

    @property
    def is_baseline(self) -> bool:
        """Whether to count a GLUE baseline."""
        return self.arch in glue_baselines.NAMES

    @property
    def asked(self) -> tuple[str, ...]:
        """Names of the analyses to print and draw: the given flags, or the sizes if there are none."""
        flags = tuple(name for name in (*NUMBERS, *PICTURES) if getattr(self, name))
        if flags:
            return flags
        return ("model_size",) if self.is_baseline else BY_DEFAULT
