"""benchmarks/mutations.py: mutated files are the same for the same seed, and what they must not do is seen."""

import json
import multiprocessing
import os
import pickle
import signal
import sys

import numpy as np
import pytest
import tiny

sys.path.insert(0, str(tiny.ROOT / "benchmarks"))

import itertools

import damage
import mutations

from compression.runtime import PackedError


@pytest.mark.slow
def test_a_few_mutated_files_are_refused_or_are_models(tmp_path):
    found = mutations.mutate_packed(files=600, seed=5, workers=1, folder=tmp_path / "found")
    assert found.files == 600
    assert found.findings == ()
    assert found.outcomes["a model"] > 30
    assert len(found.outcomes) > 30
    assert 10e6 < found.peak_bytes < mutations.MEMORY
    assert not (tmp_path / "found").exists()


def test_a_number_and_a_seed_make_the_same_file_again(honest):
    students = [damage.Honest.of(*parts) for parts in honest]
    files = [mutations.file_of(students, 3, number) for number in range(60)]
    assert files == [mutations.file_of(students, 3, number) for number in range(60)]
    assert len(set(files)) > 50
    assert mutations.file_of(students, 4, 0) != files[0]


def test_fields_of_a_header_are_found(honest):
    for header, _ in honest:
        fields = damage.fields_of(header)
        assert [start for start, *_ in fields[:4]] == [0, 1, 2, 3]
        assert {kind for *_, kind in fields} >= {"byte", "number", "text", "matrix"}
        assert all(start < end <= after for (start, end, _), (after, *_) in itertools.pairwise(fields))


def test_what_a_file_must_not_do_is_seen(monkeypatch):
    def behaves(load):
        monkeypatch.setattr(mutations, "load_bytes", load)
        return mutations.outcome(b"")

    def raises(error):
        raise error

    assert mutations.outcome(b"") == "an empty file"
    assert behaves(lambda data: raises(PackedError("no"))) == "no"
    for error in (RecursionError("deep"), MemoryError(), KeyError("x")):
        with pytest.raises(type(error)):
            behaves(lambda data, error=error: raises(error))
    with pytest.raises(AssertionError, match="an error of several lines"):
        behaves(lambda data: raises(PackedError("one\ntwo")))
    with pytest.raises(FloatingPointError):
        behaves(lambda data: np.float32(1e30) * np.float32(1e30))
    monkeypatch.setattr(mutations, "SECONDS", 0.05)
    before = signal.signal(signal.SIGPROF, mutations._too_long)
    try:
        with pytest.raises(mutations.TooLongError):
            behaves(lambda data: [None for _ in iter(int, 1)])
    finally:
        signal.signal(signal.SIGPROF, before)


def test_a_finding_before_a_crash_is_kept(tmp_path, honest, monkeypatch):
    counts = itertools.count()

    def outcome(data):
        count = next(counts)
        if count == len(honest) + 1:
            os._exit(9)
        if count == len(honest):
            raise KeyError("x")
        return "a model"

    monkeypatch.setattr(mutations, "outcome", outcome)
    monkeypatch.setattr(mutations, "MEMORY", 1 << 40)
    students, report = tmp_path / "students.pickle", tmp_path / "report.json"
    students.write_bytes(pickle.dumps([damage.Honest.of(*parts) for parts in honest]))
    context = multiprocessing.get_context("fork")
    arguments = students, 1, range(5), None, tmp_path / "found", report, context.RawValue("q", -1)
    worker = context.Process(target=mutations.run_worker, args=arguments)
    worker.start()
    worker.join()
    assert worker.exitcode == 9
    assert json.loads(report.read_text())["findings"] == [f"{tmp_path / 'found' / '0.fwt'}: KeyError: 'x'"]
