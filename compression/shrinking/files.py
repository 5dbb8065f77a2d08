"""Files of a student: packed, with the temperature and the threshold of its probabilities, and ONNX."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pydantic

from common.data.split import read_split
from common.data.tasks import Task
from common.errors import UserError
from common.progress import say
from common.store.artifact import Artifact, artifact_at
from common.store.step import Context, Inputs, Step
from common.store.workspace import Workspace
from common.teachers.guided import held_out_inputs, split_file
from common.training.models import read_config
from compression.distillation.dataset import held_out_rows
from compression.packing import pack_student
from compression.runtime import PackedError, load_bytes
from compression.shrinking.step import CPU
from compression.students.saved import load_student
from compression.students.scoring import encode_split, student_logits
from compression.students.threshold import fit_packed


class StudentFile(Step):
    """Base of the steps that build one file of a student."""

    file: ClassVar[str]
    """Name of the file in the artifact."""

    student: Path = pydantic.Field(exclude=True)
    """Folder of the student."""
    task: Task = pydantic.Field(exclude=True)

    def inputs(self, paths: Workspace) -> dict[str, Artifact]:
        """Return the student."""
        return {"model": artifact_at(self.student)}


class Pack(StudentFile):
    """A student as one .fwt file (docs/format.md)."""

    version: ClassVar[int] = 4
    file: ClassVar[str] = "student.fwt"

    reject: float | None = None
    """Share of the answers that is right if texts below the threshold have none; None: all texts have an answer."""

    def inputs(self, paths: Workspace) -> dict[str, Artifact]:
        """Return the student, and the inputs of calibration: splits, and logits if validation has no labels.

        Validation is read even if test selected the checkpoint. If one of these is missing, the student is packed
        without calibrated probabilities. Raises UserError if it would reject texts.
        """
        inputs, config = super().inputs(paths), read_config(self.student)
        if config.learned_validation:
            if self.reject is not None:
                raise UserError(f"--reject: {config.name} has learned from validation's rows, which give the threshold")
            return inputs
        if config.task_kind.has_probabilities or config.f1:
            try:
                inputs |= held_out_inputs(paths, self.task, "validation", config.teacher)
            except UserError as error:
                if self.reject is not None:
                    raise
                say(f"{config.name} is packed without calibration: {error}")
        return inputs

    def run(self, inputs: Inputs, out: Path, context: Context) -> dict[str, Any]:
        """Fit temperature and threshold, and write the packed file. Raises UserError if the runtime refuses it."""
        name = context.names["model"]
        fitted = self._fitted(inputs, name) if "splits" in inputs else read_config(inputs["model"]).calibration or {}
        data = pack_student(inputs["model"], **fitted, rejects=self.reject is not None)
        try:
            load_bytes(data)
        except PackedError as error:
            raise UserError(f"{name} cannot be packed: the runtime refuses its file: {error}") from error
        (out / self.file).write_bytes(data)
        return {"temperature": 1.0, **fitted}

    def _fitted(self, inputs: Inputs, name: str) -> dict[str, float]:
        """Return the temperature and threshold fitted on validation's labels or, without labels, on the teacher's.

        The threshold, for probabilities with this temperature, is fitted if the task is scored by F1 or texts are
        rejected; if questions may have no answer, only the threshold is. Returns an empty dict if there are neither
        labels nor a teacher.
        """
        student, tokenizer, config = load_student(inputs["model"], CPU)
        try:
            rows = held_out_rows(inputs, self.task, "validation")
        except UserError as error:  # neither labels nor a teacher
            if self.reject is not None:
                raise
            say(f"{name} is packed without calibration: {error}")
            return {}
        logits = student_logits(student, encode_split(tokenizer, rows), CPU, "calibration")
        others = None
        file = split_file(inputs, "other")
        if self.reject is not None and file.exists():
            others = student_logits(student, encode_split(tokenizer, read_split(file)), CPU, "other texts")
        fitted = fit_packed(config, logits, rows.labels, rows.sentence2 or [], self.reject, others)
        shown = ", ".join(f"{what} {value:g}" for what, value in fitted.items())
        say(f"{name}: {shown}, from {len(rows):,} rows of validation")
        return fitted


class Export(StudentFile):
    """A student as an ONNX file."""

    file: ClassVar[str] = "student.onnx"

    def run(self, inputs: Inputs, out: Path, context: Context) -> dict[str, Any]:
        """Write the ONNX file."""
        from compression.export.onnx_export import export_onnx  # onnx is optional

        export_onnx(inputs["model"], out / self.file)
        return {}


FILES: dict[str, type[StudentFile]] = {"pack": Pack, "export": Export}
