"""Settings of preprocess.py. This module imports no large library, because --help uses it."""

from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic

from common.choices import described, used_by
from common.config import Settings, Uses, flag, pairs
from common.devices import Precision
from common.launch.launcher import LAUNCHERS, Launcher
from common.store.settings import StageSettings
from compression.augmentation.methods import METHODS


def _only(names: Any) -> Any:
    # In a chain, the flag is shared with compress.py, which takes a list.
    return names[0] if isinstance(names, list | tuple) and len(names) == 1 else names


class AugmentSettings(Settings):
    """Augmentation."""

    augment: Literal[tuple(METHODS)] | None = pydantic.Field(
        None,
        json_schema_extra={"bare": "tinybert"},
        description=described(
            "Write augmented training rows by this method, or if none is named by tinybert.", METHODS
        ),
    )
    augmented: Annotated[str, pydantic.BeforeValidator(_only)] = "tinybert"
    """Name of the augmented rows; unset: the method of --augment. Sets with other settings can be kept under other
    names (compress.py --augmented NAME)."""
    augment_tasks: tuple[str, ...] = ()
    """Tasks for --augment tasks: texts of their train rows, without labels. Splits that do not exist yet are prepared.
    The task itself is skipped, so that several tasks can share a list."""
    augment_file: Path | None = None
    """Rows of your own, without labels, for --augment file: .csv, .tsv, .jsonl, .parquet or .txt, its columns of text
    named as in the task's files, or sentence1 and sentence2."""
    partners: int = pydantic.Field(5, gt=0)
    """Maximum number of new pairs per first text; with --augment closure, per row."""
    sides: Literal["both", "one"] = "both"
    """Texts of a pair in which --augment tinybert replaces words: both, or one of them, drawn for each variant."""
    masked_lm: str | None = None
    """Masked language model for --augment tinybert: roberta_base, roberta_large, or the name or folder of a fairseq or
    Hugging Face model. Unset: the encoder of the teacher that --model-name or --teacher-arch gives, where it has such a
    head; else every word is replaced by GloVe neighbours."""
    variants: int = pydantic.Field(20, gt=0)
    """Variants drawn of each row, for --augment tinybert (N of TinyBERT's Algorithm 1) and edits; duplicates are
    dropped."""
    replace_probability: float = pydantic.Field(0.4, gt=0, le=1)
    """p: probability that a word is replaced."""
    least_words: int = pydantic.Field(1, gt=0)
    """Vary only rows of at least this many words, of both texts of a pair together: short phrases teach little."""
    candidates: int = pydantic.Field(15, gt=0)
    """K: number of likely replacements of a word."""
    glove: Path | None = None
    """GloVe vectors as text; unset: the packaged 6B 50d vectors."""

    @pydantic.model_validator(mode="before")
    @classmethod
    def _name_after_method(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {"augmented": values["augment"], **values} if values.get("augment") else values

    @pydantic.model_validator(mode="after")
    def _check_file(self) -> "AugmentSettings":
        needs = METHODS[self.augment].needs if self.augment else None
        if needs and not getattr(self, needs):
            raise ValueError(f"--augment {self.augment} needs {flag(needs)}")
        return self


class LaunchSettings(Settings):
    """Launching."""

    launcher: Literal[tuple(LAUNCHERS)] = pydantic.Field(
        "local", description=described("Where augmentation and the teacher run.", LAUNCHERS)
    )
    workers: int = pydantic.Field(0, ge=0)
    """Workers of the launcher; 0: one per GPU, without GPUs one per CPU core, on a cluster as many as it can take."""
    slurm: tuple[str, ...] = ()
    """KEY=VALUE for submitit with --launcher slurm, such as partition=gpu timeout_min=120. May be repeated."""


class PreprocessSettings(AugmentSettings, LaunchSettings, StageSettings):
    """Data and logits (the thesis's table C.2, and more)."""

    most_used = (
        *("task", "glue_preprocess", "data_dir", "augment", "masked_lm", "variants", "generate_loss"),
        *("model_name", "logits_from", "logits_to", "launcher"),
    )

    glue_preprocess: bool = False
    """Prepare the task's splits; the default when no other action is given."""
    data_dir: Path | None = None
    """Folder with the task's files (for GLUE, an unpacked copy or its zips); unset: download from the official
    address."""
    validation: bool = True
    """Split validation off train. Without it, all rows stay in train, and models are chosen by --select-on test, as in
    the thesis."""
    generate_loss: tuple[str, ...] = ()
    """Write the teacher's logits of these rows: processed (train), augmented (those that --augmented names) or the name
    of augmented rows, validation, a test split."""
    model_name: str | None = None
    """Teacher for --generate-loss, unset: the task's only one; and for --augment, see --masked-lm."""
    folds: int | None = pydantic.Field(None, gt=1)
    """With --generate-loss processed, of a teacher of finetune.py --arch linear or --frozen (or an ensemble with one):
    divide train into this many folds, and compute each row's logits by a model of the other folds' rows. Unset: 4."""
    logits_from: Path | None = None
    """With --generate-loss: import the logits from this file, under the new name --model-name. A CSV, TSV, JSONL or
    Parquet file with any model's logits, probabilities or labels for the texts, or a file that --logits-to wrote.
    {task} stands for the task's name."""
    logits_to: Path | None = None
    """With --generate-loss: write the logits of these rows also to this small Parquet file, for --logits-from. {task}
    stands for the task's name."""
    teacher_arch: str | None = None
    """Check that the teacher has this architecture."""
    precision: Precision = "auto"
    """Arithmetic of the teacher: auto, fp32, bf16 or fp16; auto is that of existing logits, otherwise bf16 where
    the hardware has it, and fp32 elsewhere."""
    json_: bool = False
    """Print the results and the report on the task's files as JSON to stdout."""

    @pydantic.field_validator("logits_from", "logits_to")
    @classmethod
    def _name_task(cls, path: Path | None, info: pydantic.ValidationInfo) -> Path | None:
        task = info.data.get("task")  # missing if it was not given, or not valid
        return Path(str(path).replace("{task}", Path(task).stem)) if path and task else path

    @pydantic.model_validator(mode="after")
    def _check_files(self) -> "PreprocessSettings":
        if self.logits_from and self.logits_to:
            raise ValueError("--logits-from and --logits-to exclude each other")
        if self.logits_from and self.generate_loss and not self.model_name:
            raise ValueError("--logits-from needs --model-name, the name of the imported teacher")
        if self.logits_to and self.logits_to.suffix != ".parquet":
            raise ValueError("--logits-to writes a Parquet file: give it the suffix .parquet")
        return self

    def _uses(self) -> Uses:
        augments, reads = self.augment is not None, bool(self.generate_loss)
        method = METHODS[self.augment] if self.augment else None
        runs = reads and not self.logits_from
        prepares = self.glue_preprocess or not (augments or reads)
        names_rows = {"augmented", self.augmented} & set(self.generate_loss)
        reason = f"with --augment {self.augment}" if augments else "without --augment or --generate-loss"
        yield from used_by("launcher", self.launcher, LAUNCHERS)
        yield runs or (method and method.launches), [*LaunchSettings.model_fields, "cpu"], reason
        yield reads or (method and method.reads_encoder), ["model_name", "teacher_arch"], reason
        yield from used_by("augment", self.augment, METHODS)
        yield augments or names_rows, ["augmented"], "without --augment, or --generate-loss augmented"
        yield augments or prepares, ["seed"], "with --generate-loss alone"
        yield runs, ["precision"], "without --generate-loss, or with --logits-from"
        yield not self.logits_from, ["teacher_arch"], "with --logits-from"
        yield runs and {"processed", "train"} & set(self.generate_loss), ["folds"], "without --generate-loss processed"
        yield reads, ["logits_from", "logits_to"], "without --generate-loss"
        yield prepares or self.augment == "tasks", ["data_dir"], "without --glue-preprocess"
        yield prepares, ["validation"], "without --glue-preprocess"

    @property
    def launch(self) -> Launcher:
        """Launcher of long work."""
        return Launcher(self.launcher, self.workers, options=pairs("--slurm", self.slurm), cpu=self.cpu)
