"""The methods of --augment. This module imports no large library, because --help uses it."""

import dataclasses

from common.choices import Choice


@dataclasses.dataclass(frozen=True)
class Method(Choice):
    """A method that writes rows. Its function: PreprocessSettings, store, task -> step, or UserError if it cannot.

    With `pairs`, it names a `Source` of new pairs (compression.augmentation.pairs) instead.
    """

    needs: str | None = None
    """Setting that must be given."""
    pairs: bool = False
    """Whether it is only for tasks on pairs."""
    by_word: bool = True
    """Whether it supports tasks whose words have labels."""
    launches: bool = False
    """Whether it runs where --launcher says, not in this process."""
    reads_encoder: bool = False
    """Whether it reads the encoder of a teacher."""


_MODULE = "compression.augmentation.step"
_VARYING = ("variants", "least_words")
_WORDS = ("masked_lm", "replace_probability", "candidates", "glove", "sides")
_PARTNERS = {
    "neighbours": ("the nearest second texts by TF-IDF", "NearTexts"),
    "recombine": ("random second texts", "RandomTexts"),
    "closure": ("second texts of the same meaning, by chains of labels", "EquivalentTexts"),
}
METHODS = {
    "tinybert": Method(
        "variants with other words",
        f"{_MODULE}:variants",
        launches=True,
        reads_encoder=True,
        settings=(*_WORDS, *_VARYING),
    ),
    "edits": Method(
        "variants with words swapped, removed, added or exchanged, most of them not grammatical",
        f"{_MODULE}:edits",
        by_word=False,
        settings=_VARYING,
    ),
    **{
        name: Method(
            f"new pairs of train's texts, first texts with {partners}",
            f"compression.augmentation.pairs:{source}",
            pairs=True,
            launches=True,
            settings=("partners",),
        )
        for name, (partners, source) in _PARTNERS.items()
    },
    "tasks": Method(
        "the texts of --augment-tasks", f"{_MODULE}:texts_of_tasks", "augment_tasks", settings=("augment_tasks",)
    ),
    "file": Method(
        "the rows of --augment-file",
        f"{_MODULE}:rows_of_file",
        "augment_file",
        by_word=False,
        settings=("augment_file",),
    ),
}
