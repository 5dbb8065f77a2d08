"""The page's module answers as the NumPy runtime, is what the sources compile to, and runs in a browser."""

import base64
import importlib.metadata
import importlib.util
import itertools
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import packed_students as made
import pytest
import tiny
import web_module
from unicode_torture import TORTURE

from card import ZOO, read_cards
from common.store.workspace import Workspace
from compression.inference.explain import leave_one_out
from compression.inference.predict import load_classifier
from compression.runtime import load, tidy
from compression.runtime import zoo_file as zoo_name

NEAR = 1e-3
TEXTS = [*TORTURE, *(text for text, _ in tiny.sentences(10))]
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def zoo_file(name):
    """Return the path of a model of the zoo."""
    return Path(zoo_name(name))


def texts():
    """Return texts that UTF-8 can hold."""
    return [tidy(text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")) for text in TEXTS]


def check(path):
    """Check the answers of a file to texts, or to pairs of them."""
    theirs, ours = load(path), web_module.WebModel(path.read_bytes())
    assert (ours.task, ours.labels) == (theirs.task, theirs.labels)
    assert ours.name in ("", theirs.name)  # most files have no name, and the module sees no path
    if theirs.kind == "tags":
        for text in texts():
            words, labels, logits = ours.tags(text)
            assert words == (text.split() or [""])
            assert labels == theirs.predict([text])[0] or not text.split()
            np.testing.assert_allclose(logits, theirs.logits([text])[0], atol=NEAR)
    elif theirs.pair:
        pairs = list(itertools.pairwise(texts()))
        np.testing.assert_allclose(
            [ours.probabilities(*pair) for pair in pairs], theirs.probabilities(pairs), atol=NEAR
        )
    else:
        found = [ours.probabilities(text) for text in texts()]
        np.testing.assert_allclose(found, theirs.probabilities(texts()), atol=NEAR)


def test_it_is_small():
    assert web_module.MODULE.stat().st_size <= 61_200
    assert web_module.WRAPPER.stat().st_size <= 4_600


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sst-2-12k", "qqp-400k", "bc2gm"])
def test_models_of_the_zoo(name):
    pytest.importorskip("wasmtime")
    check(zoo_file(name))


@pytest.mark.parametrize("embedding", [*made.EMBEDDINGS, "ngrams"])
def test_students_of_every_tokenizer(tmp_path, embedding):
    pytest.importorskip("wasmtime")
    kinds = {"hash": ("gru", "last"), "char": ("ffn", "both"), "ngrams": ("ffn", "mean")}
    arch, pooling = kinds.get(embedding, ("conv", "max"))
    check(made.packed(tmp_path / "s", arch, embedding, "affine-row", pooling=pooling))


def test_long_texts_and_refusals():
    pytest.importorskip("wasmtime")
    data = zoo_file("sst-2-12k").read_bytes()
    model, long = web_module.WebModel(data), "a dull , endless film " * 20_000
    theirs = load(zoo_file("sst-2-12k"))
    np.testing.assert_allclose(model.probabilities(long), theirs.probabilities([long])[0], atol=NEAR)
    np.testing.assert_allclose(model.probabilities("fine"), theirs.probabilities(["fine"])[0], atol=NEAR)
    with pytest.raises(ValueError, match="the file's length is not the one it says"):
        web_module.WebModel(data[:-1])


@pytest.mark.slow
def test_the_module_is_what_its_sources_compile_to():
    if importlib.util.find_spec("ziglang") is None or importlib.util.find_spec("zopfli") is None:
        pytest.skip("no compiler: pip install -r requirements-web.txt")
    pinned = re.search(r"ziglang==(\S+)", (tiny.ROOT / "constraints.txt").read_text(encoding="utf-8"))[1]
    if importlib.metadata.version("ziglang") != pinned:
        pytest.skip(f"the module is compiled by ziglang {pinned}")
    assert web_module.builder()["module"]() == web_module.MODULE.read_bytes()


def test_the_page_is_built_of_packed_files_only(tmp_path):
    good, text, cut, page = (tmp_path / name for name in ("good.fwt", "text.fwt", "cut.fwt", "page.html"))
    data = zoo_file("sst-2-12k").read_bytes()
    good.write_bytes(data)
    text.write_text("a film")
    cut.write_bytes(data[:5000])

    def build(*words, code=2):
        command = [sys.executable, tiny.ROOT / "runtimes" / "web" / "build.py", *words]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60)
        assert done.returncode == code, done.stderr
        return done.stderr.splitlines()

    assert build(good, "--output", page, code=0) == []
    assert "good" in page.read_text(encoding="utf-8")
    page.unlink()
    for wrong, message in {
        "nothing": f"{zoo_file('sst-2-12k').parent / 'nothing.fwt'}: no such file",
        tmp_path / "nothing.fwt": f"{tmp_path / 'nothing.fwt'}: no such file",
        text: f"{text}: not a packed student, or damaged",
        cut: f"{cut}: not a packed student, or damaged",
        tmp_path: f"{tmp_path}: no such file",
    }.items():
        assert build(good, wrong, "--output", page) == [f"error: {message}"]
        assert not page.exists()
    nowhere = tmp_path / "nowhere" / "page.html"
    assert build(good, "--output", nowhere) == [f"error: {nowhere}: No such file or directory"]


PROBE = """
const probe = async () => {
  const type = (id, text) => { find(id).value = text; find(id).dispatchEvent(new Event("input")); };
  const choose = async index => { find("model").value = index; await find("model").onchange(); };
  const answers = [];
  for (const text of TEXTS) {
    type("first", text);
    answers.push([find("answer").textContent, model.predict(text).probabilities, model.explain(text)]);
  }
  const shown = [...document.querySelectorAll(".word")].map(each => each.firstChild.textContent);
  await choose(1);
  type("first", "BRCA1 mutations");
  const tags = model.tag("BRCA1 mutations").map(each => [each.word, each.label]);
  const facts = find("facts").textContent, problem = find("problem").hidden;
  await openFile(new File([decode(MODELS[0].file).subarray(0, 5000)], "broken.fwt"));
  const refused = [find("problem").textContent, find("model").value, find("model").length];
  await openFile(new File([decode(MODELS[0].file)], "mine.fwt"));
  const opened = [find("problem").hidden, find("model").value, model.name, find("question").textContent];
  const listed = [...document.querySelectorAll("optgroup")].map(
    group => [group.label, ...[...group.children].map(each => each.textContent)]);
  await choose(2);
  const score = [find("answer").textContent, model.predict(find("first").value, find("second").value).score];
  await openFile(new File([decode(MODELS[2].file)], "numbers.fwt"));
  const number = [find("question").textContent, find("answer").textContent];
  find("result").textContent = btoa(unescape(encodeURIComponent(JSON.stringify({answers, shown, tags, facts, problem,
    refused, opened, listed, score, number, wide: document.scrollingElement.scrollWidth}))));
};
const wait = () => model ? probe() : setTimeout(wait, 20);
wait();
</script>
<pre id="result"></pre>
"""


def test_the_page_has_all_models_of_the_zoo_but_those_that_answer_questions():
    expected = {card.name for card in read_cards(ZOO) if card.kind != "answers"}
    models = web_module.builder()["zoo_models"]()
    assert {path.stem for path in models} == expected
    assert models[0] == zoo_file("sst-2-9k")


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
def test_the_page_in_a_browser(tmp_path):
    html = web_module.builder()["page"](list(map(zoo_file, ("sst-2-12k", "bc2gm", "sts-b-400k"))))
    asked = ["a gorgeous , witty film", "d\u00e9j\u00e0 vu \u2603", "dull dull dull"]
    probe = PROBE.replace("TEXTS", json.dumps(asked))
    assert html.count("</script>") == 1
    (tmp_path / "page.html").write_text(html.replace("</script>", probe), encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--window-size=1000,900"]
    flags += [f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=300000", "--dump-dom"]
    command = [BROWSER, *flags, (tmp_path / "page.html").as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    coded = re.search(r'<pre id="result">([A-Za-z0-9+/=]+)</pre>', done.stdout)
    assert coded, done.stderr
    result = json.loads(base64.b64decode(coded[1]))
    assert result["problem"]
    model = load(zoo_file("sst-2-12k"))
    expected = model.probabilities(asked).tolist()
    classifier = load_classifier(Workspace(tmp_path), str(zoo_file("sst-2-12k")), None, cpu=True)
    drops = leave_one_out(classifier, [(text,) for text in asked], expected)
    for (label, probabilities, words), values, each, text in zip(
        result["answers"], expected, drops, asked, strict=True
    ):
        assert label == model.predict([text])[0]
        assert probabilities == pytest.approx(values, abs=NEAR)
        assert [word["word"] for word in words[0]] == text.split()
        assert [word["drop"] for word in words[0]] == pytest.approx([drop for _, drop in each[0]], abs=NEAR)
    assert result["shown"] == asked[-1].split()
    tags = load(zoo_file("bc2gm")).predict(["BRCA1 mutations"])[0]
    assert result["tags"] == [["BRCA1", tags[0]], ["mutations", tags[1]]]
    assert f"{zoo_file('bc2gm').stat().st_size:,} bytes" in result["facts"]
    # What cannot be read is not listed: the model that answers stays the one that is chosen.
    truncated = "the file's length is not the one it says: truncated, or something was appended"
    assert result["refused"] == [f"broken.fwt: {truncated}", "1", 3]
    assert result["opened"] == [True, "3", "", "One of these labels: negative, positive."]
    assert result["listed"] == [
        ["One text", "Film reviews, positive or negative, 12 KB"],
        ["Words of a text", "Names of genes and proteins, 198 KB"],
        ["Two texts", "How similar, 0 to 5, 344 KB"],
        ["Your files", "mine.fwt, 12 KB"],
    ]
    shown, score = result["score"]
    assert float(shown) == pytest.approx(5 * score, abs=0.006)
    assert 1 < float(shown) < 5
    question, shown = result["number"]  # of a file alone, which does not say the range
    assert question.startswith("Gives a number from 0 to 1: 0 is the lowest of its training data")
    assert float(shown) == pytest.approx(score, abs=0.006)
    assert result["wide"] <= 1000
    assert "CONSOLE" not in done.stderr
