"""Times by a clock of our own, and the memory of a process with a packed file."""

import numpy as np
import pytest
from packed_students import write_packed, write_student

from common import energy
from common.data.split import Split
from common.errors import UserError
from compression.evaluation import timing
from compression.evaluation.speed import packed_speed, speed, spread


def rows(count):
    return Split([f"film {i}" for i in range(count)], None, np.zeros(count, np.int64), np.arange(count))


@pytest.fixture
def counters(tmp_path, monkeypatch):
    """Folder of the machine's counters of energy, which does not exist."""
    monkeypatch.setattr(energy, "COUNTERS", tmp_path / "counters")
    return energy.COUNTERS


@pytest.fixture
def clock(monkeypatch, counters):
    """Seconds that have passed, in a list that a test may add to."""
    passed = [0.0]
    monkeypatch.setattr(timing.time, "process_time", lambda: sum(passed))
    return passed


def test_times_are_medians_of_passes_after_a_first_one(clock):
    # Together: 8 s, 4 s and 6 s; one by one: the first one's 3 s, 1 s, 2 s, then 0.5 s for each of the other two.
    seconds = iter([100, 8, 4, 6, 3, 1, 2, *[0.5] * 6])
    found = timing.times(lambda texts: clock.append(next(seconds)), "abcdefghijkl", "xyz")
    assert found == {"sentences_per_second": 2.0, "milliseconds_for_one": 500.0, "joules_for_one": None}


def test_few_rows_are_spread_evenly_over_a_split(clock):
    assert spread(rows(5), 100).tolist() == [0, 1, 2, 3, 4]
    assert spread(rows(1001), 3).tolist() == [0, 500, 1000]
    answered = []
    speed(lambda some: answered.append(some.sentence1) or clock.append(1.0), rows(3000))
    assert [len(texts) for texts in answered] == [100, *[1000] * 3, *[1] * 300]
    assert (answered[1][0], answered[1][-1]) == ("film 0", "film 2999")


def test_energy_is_what_the_processors_count_or_seconds_times_a_power(clock, counters):
    for folder, name in (("intel-rapl:0", "package-0"), ("intel-rapl:0:0", "dram"), ("intel-rapl:1", "package-1")):
        (counters / folder).mkdir(parents=True)
        (counters / folder / "name").write_text(f"{name}\n")
    file = counters / "intel-rapl:0" / "energy_uj"  # that of the second processor cannot be read
    file.write_text("900\n")
    (file.parent / "max_energy_range_uj").write_text("1000\n")

    def answer(some):
        clock.append(1.0)
        file.write_text(str((int(file.read_text()) + len(some) // 5) % 1000))

    measured = speed(answer, rows(1000))  # 200 microjoules a thousand rows; the counter starts again in the first pass
    assert measured["joules_for_one"] == pytest.approx(0.2e-6)
    assert speed(answer, rows(1000), watts=2) == {**measured, "joules_for_one": 2 / 1000}


@pytest.mark.slow
def test_a_larger_student_needs_more_memory(tmp_path):
    memory = []
    for words in (100, 50_000):
        student = write_student(tmp_path / str(words), "ffn", "hash", vocab_size=words, hash_ratio=10)
        memory.append(packed_speed(write_packed(student), "numpy", rows(3))["peak_memory"])
    assert memory[1] - memory[0] > 50_000 * (3 * 4 + 6 * 4 / 10)  # three scalars a word, and the shared vectors


def test_a_damaged_file_is_refused(tmp_path):
    (tmp_path / "s.fwt").write_bytes(b"FWT")
    with pytest.raises(UserError, match=r"s\.fwt: not a packed student"):
        packed_speed(tmp_path / "s.fwt", "numpy", rows(3))
