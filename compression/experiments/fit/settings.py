"""Settings of `experiment.py fit`."""

from pathlib import Path
from typing import Any, Literal, Self

import pydantic

from common.config import Bytes, OneOrMore, Settings
from common.data.readers.records import Delimiter
from common.errors import UserError
from common.kinds.registry import KINDS
from common.reading import UTF_8, Encoding
from common.seeds import DEFAULT_SEED
from common.store.settings import WorkspaceSettings
from common.teachers.settings import is_fairseq
from compression.experiments.report.record import definition_of

_STEM_BYTES = 80
"""Maximum length of the part of the experiment's name that comes from the file's name."""
_WITHOUT_EFFECT = {"workspace", "file", "output", "name", "cpu", "loadbar", "dry_run", "json_", "force", "strict"}
"""Settings that do not change the result, and the file, whose content is compared."""
_OTHER_FILES = {"test", "teacher_file", "other"}
"""Other files whose content is compared."""


class FitFlags(WorkspaceSettings):
    """Common settings."""

    most_used = ("text", "label", "max_bytes", "minutes", "output", "test", "dry_run", "json_")

    text: tuple[str, ...] = ()
    """Column of texts, or two columns for pairs; unset: the column named text, or the only one with long texts."""
    label: OneOrMore[str] = ()
    """Column of labels, or of numbers; several columns are a label each, of which a row has any number (1 or 0, true or
    false, yes or no, x or empty); unset: the column named label, or the only other one with few values."""
    kind: Literal["auto", *KINDS] = "auto"
    """Kind of values in the label column: a label, any number of labels (lists, in CSV and TSV joined by |), a number,
    a tag for each word, or answers to questions; auto: lists where some have several labels or none, numbers where all
    values are numbers and more than 20 differ, unless they are whole, without gaps and each on several rows; tags in
    the form O, B-X and I-X; answers in SQuAD's JSON, or in its three columns."""
    separator: str | None = pydantic.Field(None, min_length=1)
    """Separator of several labels in one cell, such as ", "; unset: | in CSV and TSV."""
    delimiter: Delimiter | None = None
    """Delimiter of a CSV or TSV; unset: the likeliest of , ; tab |, in a TSV a tab."""
    header: bool = True
    """The first line of a CSV or TSV has the columns' names; else they are called 1, 2, ..."""
    encoding: Encoding = UTF_8
    """Encoding of the files, such as windows-1252; Parquet files have none."""
    symmetric: bool = False
    """The order of a pair's texts does not matter."""
    teacher_file: Path | None = None
    """File with a model's answers to any of the texts, as the file or by a column of ids: labels, or objects with
    probabilities or logits of labels. They are a teacher; without other labels, they are the labels."""
    teacher_column: str | None = None
    """Column of the answers; unset: one named as --logits-from of preprocess.py reads them. Without --teacher-file, it
    is in the file itself."""
    test: Path | None = None
    """File with the test rows, with the same columns; unset: a tenth of the rows, or more for a small file."""
    max_bytes: OneOrMore[Bytes] = (32000,)
    """Maximum size of the packed file, in bytes or as 32k; of several sizes, each gets a file."""
    tolerable: float = pydantic.Field(1.0, ge=0)
    """Of several sizes, the smallest is recommended whose score on validation is at most so many points below the
    best."""
    reject: float | None = pydantic.Field(None, gt=0, le=1)
    """Answer "none of these" to texts whose most probable label is not probable enough, so that this share of the
    answers is right on validation, as --reject of compress.py; unset: each text gets a label."""
    other: Path | None = None
    """File with texts that should get no label, for --reject: students learn that no label is probable for them, and a
    tenth of them is held out and counts as wrong if it is answered. Its columns are those of the file, or it is .txt
    with a text a line."""
    minutes: float = pydantic.Field(15.0, gt=0)
    """Time limit of the whole fit, in minutes."""
    output: Path | None = None
    """Packed file to write, for several sizes with {size} in its name; unset: the one in the workspace only."""
    name: str | None = None
    """Name of the experiment; unset: built from the file's name, --max-bytes and --minutes."""
    encoder: str = "minilm"
    """Encoder whose vectors of the texts a teacher learns from, and that is fine-tuned if there is time: one of Hugging
    Face's, as --arch of finetune.py."""
    seed: int = DEFAULT_SEED
    """Seed of every random choice."""
    cpu: bool = False
    """Run on the CPU even if there is a GPU."""
    loadbar: bool = True
    """Show progress bars with time left."""
    dry_run: bool = False
    """Print what the file contains and which students would be tried, and stop."""
    json_: bool = False
    """Print JSON to stdout instead of text."""
    strict: bool = False
    """Exit with 1 if the result is no better than always the same label, or behind a baseline."""
    force: bool = False
    """Start over, even if the experiment is finished or was stopped."""

    @pydantic.model_validator(mode="after")
    def _check(self) -> Self:
        if not self.max_bytes or len(set(self.max_bytes)) != len(self.max_bytes):
            raise ValueError("--max-bytes takes one size, or several different ones")
        if len(self.max_bytes) > 1 and self.output and "{size}" not in self.output.name:
            raise ValueError(
                f"--output {self.output}: for several sizes, give a name with {{size}}, as small-{{size}}.fwt"
            )
        if self.other and self.reject is None:
            raise ValueError("--other is for --reject: give the share of the answers that should be right")
        if self.separator and self.kind not in ("auto", "multilabel"):
            raise ValueError("--separator is for --kind multilabel")
        if len(self.text) > 2 or len(set(self.text)) != len(self.text):
            raise ValueError("--text takes one column, or two different ones for pairs")
        if is_fairseq(self.encoder):
            raise ValueError(f"--encoder {self.encoder}: fit needs an encoder of Hugging Face's, such as minilm")
        if self.teacher_column in self.text:
            raise ValueError(f"--teacher-column: {self.teacher_column} is the column of --text")
        if len(set(self.label)) != len(self.label):
            raise ValueError("--label takes one column, or several different ones")
        if len(self.label) > 1 and (self.separator or self.kind not in ("auto", "multilabel")):
            unused = "--separator" if self.separator else f"--kind {self.kind}"
            raise ValueError(f"{unused} is for one column of --label; several are a label each")
        if both := set(self.label) & set(self.text):
            raise ValueError(f"--label: {min(both)} is the column of --text")
        return self


class FitSettings(FitFlags):
    """Fitting a student to a file."""

    file: Path
    """CSV, TSV, JSON, JSONL or Parquet file with texts and labels."""

    @property
    def experiment(self) -> str:
        """Name of the experiment and of its task in the workspace."""
        stem = "".join(c if c.isalnum() or c in "-_" else "-" for c in self.file.stem).strip("-") or "data"
        stem = stem.encode()[:_STEM_BYTES].decode(errors="ignore")
        return self.name or f"{stem}-{'-'.join(map(str, self.max_bytes))}-{self.minutes:g}min"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are needed, if they need not be guessed; else none."""
        return (*self.text, *self.label) if self.text and self.label and not self.has_answers else ()

    @property
    def has_answers(self) -> bool:
        """Whether answers of a model are a teacher."""
        return bool(self.teacher_file or self.teacher_column)

    def output_of(self, max_bytes: int) -> Path | None:
        """Return the path of --output for a size, None without --output."""
        if self.output is None:
            return None
        return self.output.parent / self.output.name.replace("{size}", str(max_bytes))

    @property
    def packing(self) -> dict[str, Any]:
        """Flags of compress.py for packing a student."""
        reject = {} if self.reject is None else {"reject": self.reject}
        return {"compression_actions": ("pack",), **reject}

    @property
    def seconds(self) -> float:
        """Time limit of the whole fit, in seconds."""
        return 60 * self.minutes

    def effective(self) -> dict[str, object]:
        """Return the settings that change the result, in the form of flags."""
        effective = self.model_dump(mode="json", exclude=_WITHOUT_EFFECT, exclude_defaults=True)
        if "encoder" in effective and Path(self.encoder).exists():
            effective["encoder"] = self.paths.relative(self.encoder)
        for name in _OTHER_FILES & effective.keys():
            effective[name] = Path(effective[name]).name
        return {**effective, "max_bytes": list(self.max_bytes), "minutes": self.minutes}

    def definition(self) -> str:
        """Return the experiment's definition in words, which tells experiments of the same name apart."""
        effective = self.effective()
        # An encoder's whole path: two may have the same file name.
        encoder = f" encoder={effective.pop('encoder')}" if "encoder" in effective else ""
        return definition_of(f"fit {self.file.name}{encoder}", effective)


def settings_for_file(flags: FitFlags, file: str) -> FitSettings:
    """Return the settings of a command line and its file. Raises UserError if the path is a folder."""
    if Path(file).is_dir():
        raise UserError(f"{file} is a folder; give a CSV, TSV, JSONL or Parquet file")
    return FitSettings(file=Path(file), **dict(flags))


class Baseline(Settings):
    """A baseline's score on the test rows."""

    name: str
    metrics: dict[str, float]
    """Empty if the baseline failed."""
    details: str
    """Size and other facts on the model, or the reason for the failure."""
    seconds: float
