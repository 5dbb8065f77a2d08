"""A text classifier with the methods of scikit-learn's estimators, trained by `fit` of experiment.py.

    classifier = Classifier(max_bytes="32k", minutes=5).fit(texts, labels)

This module needs NumPy only. Training is a process of its own, which alone imports the libraries for training.
"""

from __future__ import annotations

import inspect
import os
import sys
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .runtime.model import Model, items_of, load_bytes, read_texts, read_with, type_of
from .runtime.reader import PackedError
from .runtime.words import tidy

OLDEST = (3, 11)
"""The oldest Python that the scripts run on."""


def load(model: str | os.PathLike[str]) -> Model:
    """Return the model of a packed file, given by its path or by its name in the zoo (sst-2-12k).

    The C runtime answers, or NumPy where it cannot be loaded or does not read the model. Raises PackedError for an
    unknown name, or if the file is malformed.
    """
    return read_with(_fastest, model)


def _fastest(packed: bytes) -> Model:
    try:
        from .runtime.native import NativeModel  # ctypes is missing on some systems

        return NativeModel(packed)
    except (ImportError, PackedError):
        return load_bytes(packed)


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file, or leave the path as it is and raise OSError."""
    partial = f"{os.fspath(path)}.partial"
    try:
        with open(partial, "wb") as file:
            file.write(data)
        os.replace(partial, path)
    except BaseException:
        if os.path.isfile(partial):
            os.remove(partial)
        raise


def command_of(script: str, words: Sequence[str]) -> list[str]:
    """Return the command that runs a script of the project. Raises PackedError if this Python is too old for it."""
    if sys.version_info < OLDEST:
        raise PackedError(f"training needs Python {OLDEST[0]}.{OLDEST[1]} or newer; this is {sys.version.split()[0]}")
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return [sys.executable, os.path.join(folder, f"{script}.py"), *words]


class Classifier:
    """Text classifier in a packed file of a given size, trained within a given time.

    `fit` does what the command `featherweight fit` does, in a process of its own: it holds out rows, trains cheap
    teachers, then students for as long as there is time, and packs the student that is best on validation. The methods
    are those of scikit-learn's estimators; without scikit-learn they work, too. A pickle has the packed file.

    Parameters
    ----------
    max_bytes : int or str, default=32000
        Maximum size of the packed file, in bytes or as "32k".
    minutes : float, default=15.0
        Time limit of the training, in minutes.
    encoder : str, default="minilm"
        Encoder whose vectors of the texts a teacher learns from, and that is fine-tuned if there is time.
    seed : int, default=3201976
        Seed of every random choice.
    cpu : bool, default=False
        Train on the CPU even if there is a GPU.
    workspace : str or path, default=None
        Folder for the files of the training, with a report; in it, a training that was stopped continues when it is
        repeated. None: a temporary folder.
    verbose : bool, default=False
        Print what the training does to stderr.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted, of the type that `fit` was given.
    model_ : Model
        The packed model, as `featherweight.load` returns it; `model_.bytes` is its size.

    Examples
    --------
    >>> from featherweight import Classifier
    >>> classifier = Classifier(max_bytes="32k", minutes=5).fit(texts, labels)
    >>> classifier.predict(["a gorgeous , witty film"])
    array(['positive'], dtype='<U8')
    """

    def __init__(
        self,
        max_bytes: int | str = 32_000,
        minutes: float = 15.0,
        encoder: str = "minilm",
        seed: int = 3201976,
        cpu: bool = False,
        workspace: str | os.PathLike[str] | None = None,
        verbose: bool = False,
    ) -> None:
        self.max_bytes = max_bytes
        self.minutes = minutes
        self.encoder = encoder
        self.seed = seed
        self.cpu = cpu
        self.workspace = workspace
        self.verbose = verbose

    def fit(self, texts: Iterable[str], labels: Iterable[str] | Iterable[int]) -> Classifier:
        """Train on labelled texts. Warns of labels that are left out, and of a result that is not good.

        Parameters
        ----------
        texts : list, array or column of a table, of shape (n_texts,)
            At least 50 strings.
        labels : list, array or column of a table, of shape (n_texts,)
            A label for each text: all are strings, or all are integers. Those of fewer than five texts are left out.

        Returns
        -------
        Classifier
            The classifier itself.

        Raises
        ------
        ValueError
            If texts or labels are not as above, or there are fewer than two labels.
        RuntimeError
            If the training fails, with the last line that it prints; it says what to install if libraries are missing.
        """
        rows = [text for (text,) in read_texts(texts, pair=False)]
        classes, numbers = np.unique(_checked(labels, len(rows)), return_inverse=True)
        names = _names(classes)
        if len(names) < 2:
            raise ValueError(f"fit needs two or more different labels, not {len(names)}")
        model, messages = self._train(rows, [names[number] for number in numbers.tolist()])
        for message in messages:
            warnings.warn(message, stacklevel=2)
        return self._with(model, classes)

    def predict(self, texts: Iterable[str]) -> np.ndarray:
        """Return the most probable label of each text, shape (n_texts,)."""
        probabilities = self.predict_proba(texts)
        return self.classes_[probabilities.argmax(axis=1)]

    def predict_proba(self, texts: Iterable[str]) -> np.ndarray:
        """Return the probabilities of the labels, in the order of `classes_`: float32, shape (n_texts, n_classes)."""
        return self._fitted().probabilities(texts)[:, self._columns]

    def score(
        self,
        texts: Iterable[str],
        labels: Iterable[str] | Iterable[int],
        sample_weight: Sequence[float] | np.ndarray | None = None,
    ) -> float:
        """Return the accuracy: the share of the texts whose predicted label is the given one."""
        predicted = self.predict(texts)
        right = _checked(labels, len(predicted))
        first, label = predicted.item(0), right.item(0)
        if isinstance(label, str) != isinstance(first, str):
            raise ValueError(f"the labels of the classifier are such as {first!r}, not {label!r}")
        return float(np.average(predicted == right, weights=sample_weight))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the packed file (.fwt), which all runtimes read. It has labels as text."""
        write_whole(path, self._fitted().packed)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Classifier:
        """Return the classifier of a packed file, given by its path or by its name in the zoo (sst-2-12k).

        Labels are integers if all are written as such. Raises ValueError if the file is malformed, or if its model does
        not answer each text with one label.
        """
        model = load(path)
        if model.kind != "labels" or model.rejects:
            raise ValueError(f"{os.fspath(path)} does not answer each text with one label; featherweight.load reads it")
        labels = np.array(model.labels)
        try:
            integers = labels.astype(np.int64)
        except (ValueError, OverflowError):
            integers = labels
        return cls()._with(model, np.unique(integers if np.array_equal(integers.astype(str), labels) else labels))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters of the constructor. deep: has no effect, as no parameter is an estimator."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Classifier:
        """Set parameters of the constructor, and return the classifier. Raises ValueError for an unknown one."""
        if unknown := params.keys() - self.get_params().keys():
            raise ValueError(f"{type(self).__name__} has no parameter {min(unknown)!r}")
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.get_params().items())})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "model_": self.model_.packed} if hasattr(self, "model_") else self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "model_" in state:
            self.model_ = _fastest(state["model_"])

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True),
            classifier_tags=ClassifierTags(),
            input_tags=InputTags(two_d_array=False, string=True),
            non_deterministic=True,
        )

    def _train(self, texts: Sequence[str], labels: Sequence[str]) -> tuple[Model, list[str]]:
        """Run the command. Returns the packed model, and what to warn of. Raises RuntimeError if it fails."""
        # Here, because they take longer to import than a packed file to load.
        import hashlib
        import json
        import subprocess
        import tempfile

        rows = "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in zip(texts, labels))
        flags = [f"--{name.replace('_', '-')}={getattr(self, name)}" for name in ("max_bytes", "minutes", "encoder")]
        flags += [f"--seed={self.seed}", *["--cpu"] * self.cpu]
        # The name of the task: a workspace may have several, and continues one that was stopped.
        name = "classifier-" + hashlib.sha256(f"{flags}{rows}".encode()).hexdigest()[:12]
        with tempfile.TemporaryDirectory(prefix="featherweight-") as folder:
            file, packed = os.path.join(folder, f"{name}.jsonl"), os.path.join(folder, "classifier.fwt")
            with open(file, "w", encoding="utf-8") as output:
                output.write(rows)
            flags += ["--text=text", "--label=label", "--kind=labels", "--json", "--no-loadbar", f"--output={packed}"]
            flags.append(f"--workspace={folder if self.workspace is None else os.fspath(self.workspace)}")
            with open(os.path.join(folder, "result.json"), "w+", encoding="utf-8") as result:
                command, last = command_of("experiment", ["fit", file, *flags]), ""
                environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
                with subprocess.Popen(
                    command, env=environment, stdout=result, stderr=subprocess.PIPE, encoding="utf-8"
                ) as process:
                    try:
                        for line in process.stderr or ():
                            last = line.strip() or last
                            if self.verbose:
                                print(line, end="", file=sys.stderr, flush=True)
                    except BaseException:
                        process.kill()
                        raise
                if process.returncode:
                    raise RuntimeError(last.removeprefix("error: ") or f"the training exited with {process.returncode}")
                result.seek(0)
                shown = json.load(result)
            return load(packed), [*shown["notes"], *shown["warnings"]]

    def _with(self, model: Model, classes: np.ndarray) -> Classifier:
        """Return itself, with a model. classes: sorted labels; those that the model lacks are left out."""
        kept = [(place, name) for place, name in enumerate(_names(classes)) if name in model.labels]
        self.model_ = model
        self.classes_ = classes[[place for place, _ in kept]]
        self._columns = [model.labels.index(name) for _, name in kept]
        return self

    def _fitted(self) -> Model:
        if hasattr(self, "model_"):
            return self.model_
        try:
            from sklearn.exceptions import NotFittedError as Unfitted
        except ImportError:
            Unfitted = ValueError
        raise Unfitted(f"this {type(self).__name__} is not fitted: call fit, or load a packed file")


def _checked(labels: Any, count: int) -> np.ndarray:
    """Return labels as an array. Raises ValueError if they are not strings, or not integers, or not `count`."""
    values = list(items_of(labels, "labels"))
    if len(values) != count or not count:
        raise ValueError(f"{count:,} texts and {len(values):,} labels")
    for place, label in enumerate(values, 1):
        if not isinstance(label, (str, int, np.integer)) or isinstance(label, bool):
            raise ValueError(f"label {place} is {type_of(label)}, not a str or an int")
    if len({isinstance(label, str) for label in values}) > 1:
        raise ValueError("some labels are of type str, and others of type int")
    return np.asarray(labels if hasattr(labels, "dtype") else values)


def _names(classes: np.ndarray) -> list[str]:
    """Return labels as a packed file has them. Raises ValueError for those that it cannot tell apart."""
    names = [tidy(str(label)) for label in classes]
    if "" in names or len(set(names)) < len(names):
        raise ValueError(f"labels are empty, or differ in white space only: {sorted(map(str, classes))}")
    return names
