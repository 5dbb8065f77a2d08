"""Files that the benchmarks of the C runtime and of the web module cannot measure; the benchmark of teachers."""

import sys
import time

import packed_students as made
import pytest
import tiny
from processes import run_script

sys.path.insert(0, str(tiny.ROOT / "benchmarks"))

import teacher_logits


@pytest.mark.parametrize("script", ["runtime.py --task sst-2 --only-c", "web.py"])
def test_files_that_cannot_be_measured_are_named(tmp_path, capsys, script):
    (tmp_path / "text.fwt").write_text("a film\n")
    student = made.write_student(tmp_path / "several", "ffn", "hash", kind="multilabel")
    wrong = {
        "nothing": "nothing: not a file, and not a model of the zoo",
        tmp_path / "nothing.fwt": "nothing.fwt: no such file",
        tmp_path / "text.fwt": "text.fwt: not a packed student",
        made.write_packed(student): "this benchmark is of single sentences with labels",
        "qqp-400k": "this benchmark is of single sentences with labels",
    }
    name, *words = script.split()
    for file, message in wrong.items():
        code = run_script(f"benchmarks/{name}", *words, "--workspace", tmp_path / "workspace", "--files", file)
        (line,) = capsys.readouterr().err.splitlines()
        assert code == 2
        assert line.startswith("error: ")
        assert message in line


def test_students_of_other_labels_are_named(tmp_path, capsys):
    file = made.packed(tmp_path / "s", "ffn", "hash", labels=["no", "yes"])
    words = ("--task", "sst-2", "--only-c", "--workspace", tmp_path / "workspace", "--files", file)
    assert run_script("benchmarks/runtime.py", *words) == 2
    assert "its labels are no, yes; sst-2 has negative, positive" in capsys.readouterr().err


@pytest.mark.slow
def test_teachers_are_measured(tmp_path):
    rows = [[text, str(label)] for text, label in tiny.sentences(20)]
    file = tiny.write_tsv(tmp_path / "train.tsv", ["sentence", "label"], rows)
    assert teacher_logits.speed(file, 1, 8, time.perf_counter)["largest_difference"] < 1e-4
    assert teacher_logits.memory(file, 20)["rows"] == 20
