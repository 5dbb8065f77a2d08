"""`Classifier`: an estimator of scikit-learn's kind, with and without scikit-learn; most tests train nothing."""

import inspect
import os
import pickle
import subprocess
import sys
import types

import numpy as np
import own_task
import pandas as pd
import pytest
import tiny
from sklearn import clone
from sklearn.base import is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks as checks

from compression import Classifier, classifier
from compression.experiments.fit.settings import FitFlags
from compression.runtime import PackedError, load

ROWS = own_task.labelled_rows(200)
TEXTS = [text for text, _ in ROWS]
NUMBERS = [int(label == "thumbs up") for _, label in ROWS]
WORDS = ["positive" if number else "negative" for number in NUMBERS]
UNRELATED = np.random.default_rng(0).integers(2, size=len(TEXTS)).tolist()
"""Labels that texts do not tell, so that the training warns."""
API_CHECKS = (
    # All of scikit-learn's that need no data. The others fit tables of numbers: the tag two_d_array excludes them.
    checks.check_estimator_cloneable,
    checks.check_estimator_tags_renamed,
    checks.check_valid_tag_types,
    checks.check_estimator_repr,
    checks.check_no_attributes_set_in_init,
    checks.check_estimators_unfitted,
    checks.check_do_not_raise_errors_in_init_or_set_params,
    checks.check_mixin_order,
    checks.check_parameters_default_constructible,
    checks.check_get_params_invariance,
    checks.check_set_params,
)


@pytest.fixture(scope="session")
def fitted(tmp_path_factory):
    """A classifier that was trained on labels 0 and 1, with its workspace."""
    settings = {"max_bytes": "4k", "minutes": 0.2, "cpu": True, "workspace": tmp_path_factory.mktemp("workspace")}
    with pytest.warns(UserWarning, match="Give more --minutes"):
        return Classifier(**settings).fit(TEXTS, UNRELATED)


@pytest.fixture
def untrained(monkeypatch):
    """A classifier whose fit takes a model of the zoo instead of training one."""
    monkeypatch.setattr(Classifier, "_train", lambda *_: (load("sst-2-12k"), []))
    return Classifier()


@pytest.mark.slow
def test_a_trained_classifier_is_saved_loaded_and_pickled(fitted, tmp_path):
    assert fitted.model_.bytes <= 4000
    assert fitted.classes_.tolist() == [0, 1]
    probabilities = fitted.predict_proba(TEXTS)
    assert probabilities.shape == (200, 2)
    assert np.allclose(probabilities.sum(axis=1), 1)
    predicted = fitted.predict(TEXTS)
    assert predicted.dtype == np.array(UNRELATED).dtype
    assert fitted.score(TEXTS, UNRELATED) == np.mean(predicted == UNRELATED)
    fitted.save(tmp_path / "small.fwt")
    assert [path.name for path in tmp_path.iterdir()] == ["small.fwt"]
    assert load(tmp_path / "small.fwt").predict(TEXTS) == list(map(str, predicted))
    for copied in (Classifier.load(tmp_path / "small.fwt"), pickle.loads(pickle.dumps(fitted))):
        assert np.array_equal(copied.predict_proba(TEXTS), probabilities)
        assert np.array_equal(copied.predict(TEXTS), predicted)
        assert copied.predict(TEXTS).dtype == predicted.dtype
    assert len(pickle.dumps(fitted)) < fitted.model_.bytes + 800


@pytest.mark.slow
def test_a_training_that_is_repeated_in_its_workspace_is_found(fitted, capsys):
    again = clone(fitted).set_params(verbose=True)
    with pytest.warns(UserWarning, match="Give more --minutes"):
        again.fit(np.array(TEXTS), pd.Series(UNRELATED))
    assert again.model_.packed == fitted.model_.packed
    assert "up to date" in capsys.readouterr().err


@pytest.mark.slow
def test_a_failure_of_the_training_is_its_last_line(tmp_path):
    for settings, message in (
        ({"max_bytes": "many"}, r"--max-bytes: .*\(got 'many'\)"),
        ({}, r".*fit needs 50 or more"),
    ):
        with pytest.raises(RuntimeError, match=f"^{message}$"):
            Classifier(workspace=tmp_path, **settings).fit(TEXTS[:9], WORDS[:9])


@pytest.mark.slow
def test_it_needs_numpy_only_to_answer(tmp_path):
    program = f"""
import pickle, sys
from compression import Classifier
texts = {TEXTS[:3]!r}
loaded = Classifier.load("sst-2-12k")
print(pickle.loads(pickle.dumps(loaded)).predict(texts).tolist(), loaded.score(texts, {WORDS[:3]!r}))
print({{"sklearn", "scipy", "pandas", "torch", "common", "json"}} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tiny.ROOT, capture_output=True, text=True, check=True)
    loaded = Classifier.load("sst-2-12k")
    expected = f"{loaded.predict(TEXTS[:3]).tolist()} {loaded.score(TEXTS[:3], WORDS[:3])}"
    assert done.stdout.splitlines() == [expected, "set()"]


def test_an_interrupt_ends_the_training(monkeypatch):
    program = "import os, sys, time; print(os.getpid(), file=sys.stderr, flush=True); time.sleep(60)"
    monkeypatch.setattr(classifier, "command_of", lambda *_: [sys.executable, "-c", program])
    shown = []

    def write(line):
        shown.append(line)
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "stderr", types.SimpleNamespace(write=write, flush=lambda: None))
    with pytest.raises(KeyboardInterrupt):
        Classifier(verbose=True).fit(TEXTS, WORDS)
    with pytest.raises(ProcessLookupError):
        os.kill(int(shown[0]), 0)


@pytest.mark.parametrize("check", API_CHECKS, ids=lambda check: check.__name__)
def test_scikit_learns_checks_without_data(check):
    check("Classifier", Classifier())


@pytest.mark.filterwarnings("ignore:Can't test estimator:sklearn.exceptions.SkipTestWarning")
def test_scikit_learn_skips_checks_of_tables():
    (result,) = checks.check_estimator(Classifier())
    assert (result["check_name"], result["status"]) == ("check_estimator_cloneable", "passed")


def test_defaults_are_those_of_the_command():
    for name, parameter in inspect.signature(Classifier).parameters.items():
        if name not in ("workspace", "verbose"):
            default = FitFlags.model_fields[name].default
            assert parameter.default == (default[0] if isinstance(default, tuple) else default), name


def test_an_unknown_parameter_is_refused_before_others_are_set():
    unchanged = Classifier()
    with pytest.raises(ValueError, match=r"^Classifier has no parameter 'minute'$"):
        unchanged.set_params(max_bytes="8k", minute=3)
    assert unchanged.max_bytes == 32_000


def test_it_works_in_pipelines_searches_and_cross_validation(untrained):
    assert is_classifier(untrained)
    pipeline = make_pipeline(FunctionTransformer(lambda texts: [text.lower() for text in texts]), untrained)
    assert "Classifier" in pipeline._repr_html_()
    scores = cross_val_score(pipeline, TEXTS, WORDS, cv=2)
    assert scores.mean() == pytest.approx(pipeline.fit(TEXTS, WORDS).score(TEXTS, WORDS))
    assert scores.mean() > 0.8
    search = GridSearchCV(untrained, {"max_bytes": ["8k", 32_000]}, cv=2, scoring="roc_auc").fit(np.array(TEXTS), WORDS)
    assert search.best_estimator_.max_bytes == "8k"
    assert search.best_score_ > 0.9


@pytest.mark.parametrize("of", [list, tuple, iter, np.array, pd.Series, lambda values: np.array(values, object)])
def test_texts_and_labels_are_any_lists_of_them(untrained, of):
    predicted = untrained.fit(of(TEXTS), of(WORDS)).predict(of(TEXTS))
    assert predicted.tolist() == load("sst-2-12k").predict(TEXTS)
    assert predicted.dtype.kind == ("U" if of in (list, tuple, iter, np.array) else "O")
    assert untrained.score(of(TEXTS), of(WORDS)) == np.mean(predicted == WORDS)
    assert untrained.predict([]).shape == (0,)


def test_labels_on_too_few_texts_are_left_out(untrained):
    untrained.fit(TEXTS, ["neutral", *WORDS[1:]])
    assert untrained.classes_.tolist() == ["negative", "positive"]


def test_probabilities_are_in_the_order_of_the_classes(monkeypatch):
    """A packed file has labels as texts, in which 10 comes before 9."""
    model = types.SimpleNamespace(labels=("10", "9"), probabilities=lambda texts: np.array([[0.75, 0.25]]))
    monkeypatch.setattr(Classifier, "_train", lambda *_: (model, []))
    fitted = Classifier().fit(TEXTS, np.array(NUMBERS, np.uint8) + 9)
    assert fitted.classes_.tolist() == [9, 10]
    assert fitted.predict_proba(["a text"]).tolist() == [[0.25, 0.75]]
    assert fitted.predict(["a text"]).tolist() == [10]
    assert fitted.predict(["a text"]).dtype == np.uint8


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        (pd.DataFrame({"text": TEXTS}), WORDS, "expected a list of texts, not a DataFrame"),
        (None, WORDS, "expected a list of texts, not None"),
        ("a text", WORDS, "expected a list of texts, not a str"),
        (np.ones((200, 2)), WORDS, "item 1 is a ndarray, not a text"),
        ([*TEXTS[:-1], None], WORDS, "item 200 is None, not a text"),
        ([*TEXTS[:-1], 1.5], WORDS, "item 200 is a float, not a text"),
        ([*zip(TEXTS, TEXTS, strict=True)], WORDS, "item 1 is a tuple, not a text"),
        (TEXTS, None, "expected a list of labels, not None"),
        (TEXTS, pd.DataFrame({"label": WORDS}), "expected a list of labels, not a DataFrame"),
        (TEXTS, WORDS[:3], "200 texts and 3 labels"),
        ([], [], "0 texts and 0 labels"),
        (TEXTS, [*WORDS[:-1], None], "label 200 is None, not a str or an int"),
        (TEXTS, [*WORDS[:-1], float("nan")], "label 200 is a float, not a str or an int"),
        (TEXTS, [*WORDS[:-1], True], "label 200 is a bool, not a str or an int"),
        (TEXTS, np.array(NUMBERS)[:, None], "label 1 is a ndarray, not a str or an int"),
        (TEXTS, [*WORDS[:-1], 1], "some labels are of type str, and others of type int"),
        (TEXTS, ["positive"] * 200, "fit needs two or more different labels, not 1"),
        (TEXTS, [*WORDS[:-1], ""], r"labels are empty, or differ in white space only: \['', 'negative', 'positive'\]"),
        (TEXTS, [*WORDS[:-1], "positive "], r"labels are empty, or differ .*: \['negative', 'positive', 'positive '\]"),
    ],
)
def test_what_is_not_texts_and_labels_is_one_line(untrained, texts, labels, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        untrained.fit(texts, labels)


def test_an_estimator_that_is_not_fitted_says_so(monkeypatch, tmp_path):
    for use in (lambda: Classifier().predict(TEXTS), lambda: Classifier().save(tmp_path / "none.fwt")):
        with pytest.raises(NotFittedError, match="this Classifier is not fitted: call fit, or load a packed file"):
            use()
    monkeypatch.setitem(sys.modules, "sklearn.exceptions", None)
    with pytest.raises(ValueError, match="this Classifier is not fitted") as caught:
        Classifier().predict(TEXTS)
    assert caught.type is ValueError


def test_labels_of_another_type_are_not_scored():
    loaded = Classifier.load("sst-2-12k")
    message = r"the labels of the classifier are such as '\w+', not \d"
    with pytest.raises(ValueError, match=message):
        loaded.score(TEXTS, NUMBERS)
    assert loaded.score(TEXTS[:2], WORDS[:2], sample_weight=[0, 1]) == loaded.score(TEXTS[1:2], WORDS[1:2])


def test_only_files_with_one_label_a_text_are_loaded(tmp_path):
    with pytest.raises(PackedError, match="not a file, and not a model of the zoo"):
        Classifier.load("sst-2-12m")
    (tmp_path / "damaged.fwt").write_bytes(b"FWT")
    with pytest.raises(PackedError, match=r"damaged\.fwt: not a packed student"):
        Classifier.load(tmp_path / "damaged.fwt")
    for name in ("bc2gm", "sts-b-400k"):
        with pytest.raises(ValueError, match=f"^{name} does not answer each text with one label; featherweight.load"):
            Classifier.load(name)
