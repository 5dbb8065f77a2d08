"""The joined runtime: one file that answers and refuses as the package does, and needs numpy alone."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from damage import assemble, damaged
from unicode_torture import TORTURE

from compression.runtime import model as package

FILES = 300


def outcome(module, data, text):
    """Return a file's logits of a text, or its error."""
    try:
        model = module.load_bytes(data)
        return model.logits([(text, text) if model.pair else text]).tobytes()
    except module.PackedError as error:
        return str(error)


def test_it_answers_as_the_package(models, joined_runtime):
    for model, folder in models.values():
        other = joined_runtime.load(folder / f"{folder.name}.fwt")
        assert np.array_equal(other.probabilities(TORTURE[::3]), model.probabilities(TORTURE[::3]))
        assert (other.name, other.task, other.labels, other.arch) == (model.name, model.task, model.labels, model.arch)


def test_a_name_is_that_of_a_packed_file_next_to_it(models, joined, joined_runtime, tmp_path):
    model, folder = models["hash"]
    copy = shutil.copy(folder / "hash.fwt", joined.parent / "of-hash.fwt")
    assert joined_runtime.load("of-hash").predict(["a film"]) == model.predict(["a film"])
    Path(copy).unlink()
    with pytest.raises(joined_runtime.PackedError, match="of-hash: not a file, and not a model of the zoo"):
        joined_runtime.load("of-hash")


@pytest.mark.slow
def test_it_refuses_as_the_package(honest, joined_runtime):
    rng = np.random.default_rng(17)
    files = [b"", b"FWT", *(assemble(*parts) for parts in honest), *(damaged(rng, honest) for _ in range(FILES))]
    with np.errstate(all="ignore"):
        outcomes = [outcome(joined_runtime, data, "A film, 2!") for data in files]
        assert outcomes == [outcome(package, data, "A film, 2!") for data in files]
    assert len({kind for kind in outcomes if isinstance(kind, str)}) > 15
    assert sum(isinstance(kind, bytes) for kind in outcomes) > FILES // 50


@pytest.mark.slow
def test_it_starts_with_numpy_alone(models, joined, tmp_path):
    _, folder = models["bpe"]
    shutil.copy(joined, tmp_path)
    shutil.copy(folder / "bpe.fwt", tmp_path)
    packages = tmp_path / "packages"
    packages.mkdir()
    for part in ("numpy", "numpy.libs"):
        if (there := Path(np.__file__).parent.parent / part).exists():
            (packages / part).symlink_to(there)
    script = (
        "import sys, runpy; sys.path[:0] = ['.', 'packages']; sys.argv = ['x', 'bpe.fwt', 'a film'];"
        f"runpy.run_path('{joined.name}', run_name='__main__');"
        "print(sorted({name.split('.')[0] for name in sys.modules} - set(sys.stdlib_module_names) - {'__main__'}))"
    )
    command = [sys.executable, "-I", "-S", "-c", script]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    answer, loaded = done.stdout.splitlines()
    assert answer.split("\t")[0] in models["bpe"][0].labels
    assert loaded == "['numpy']"
