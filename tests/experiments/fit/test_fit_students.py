"""The students that a fit tries: their sizes before anything is trained, and their variations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.data.tasks import load_task
from common.errors import UserError
from compression.experiments.fit.students import VARIATIONS, candidates, packed_bytes, varied, widths

SINGLE, PAIR = load_task("sst-2"), load_task("mrpc")


@given(st.integers(8000, 2_000_000), st.booleans(), st.sampled_from([2, 9, 150]))
def test_students_are_estimated_to_fit(max_bytes, pair, classes):
    labels = tuple(f"label {number}" for number in range(classes))
    task = (PAIR if pair else SINGLE).model_copy(update={"labels": labels})
    tried = candidates(task, max_bytes, 0.1)
    assert len({candidate.student for candidate in tried}) == len(tried)
    for candidate in tried:
        assert packed_bytes(task, candidate.flags) <= max_bytes
        assert candidate.bytes <= max_bytes


def test_a_size_too_small_for_any_student_names_one_that_is_enough():
    with pytest.raises(UserError, match=r"--max-bytes 300: too small for any student; give ([0-9,]+) or more") as error:
        candidates(SINGLE, 300, 0.1)
    enough = int(str(error.value).split("give ")[1].split(" ")[0].replace(",", ""))
    assert candidates(SINGLE, enough, 0.1)


def test_widths_grow_with_the_size():
    sizes = [widths(size) for size in (10, 1000, 8000, 32_000, 100_000, 400_000, 10**7)]
    assert sizes == sorted(sizes)
    assert sizes[0] == sizes[1]
    assert sizes[-1] == sizes[-2]


@pytest.mark.parametrize("symmetric", [False, True])
def test_students_of_pairs_align_their_texts(symmetric):
    task = PAIR.model_copy(update={"symmetric": symmetric})
    aligned = [one.flags for one in candidates(task, 32_000, 0.1) if one.flags["student_arch"] != "ffn"]
    assert [(flags["pair_encoder"], flags["symmetric"]) for flags in aligned] == [("align", symmetric)] * 2
    single = candidates(SINGLE, 32_000, 0.1)
    assert not any({"pair_encoder", "symmetric"} & candidate.flags.keys() for candidate in single)


@given(st.integers(8000, 400_000))
def test_variations_differ_from_the_best_and_fit(max_bytes):
    for best in candidates(SINGLE, max_bytes, 0.1):
        changed = [varied(SINGLE, best, factors, max_bytes) for _, factors in VARIATIONS]
        assert any(changed)
        for candidate in filter(None, changed):
            assert candidate.flags != best.flags
            assert candidate.student == best.student
            assert candidate.bytes <= max_bytes
