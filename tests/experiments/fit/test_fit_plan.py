"""How fit divides its time, and which students it tries: pure functions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UserError
from compression.experiments.fit.candidates import Candidate, find_candidates, packed_bytes, widths
from compression.experiments.fit.halving import Cost, Trained, best_first, plan_rung, rung_sizes
from compression.experiments.fit.plan import LEAST_SECONDS, Speeds, make_plan

FAST = Speeds(start=3, prepare=4000, words=15, pieces=(18,) * 50, load=4, train=4000, infer=15000)
"""About two idle cores and sentences of 15 words."""
speeds = st.builds(
    Speeds,
    start=st.floats(0.5, 60),
    prepare=st.floats(50, 20_000),
    words=st.floats(1, 2000),
    pieces=st.one_of(st.just(()), st.lists(st.integers(3, 128), min_size=1, max_size=20).map(tuple)),
    load=st.floats(0.5, 60),
    train=st.floats(10, 1e6),
    infer=st.floats(50, 1e7),
)


@given(speeds, st.integers(50, 200_000), st.floats(1, 7200))
def test_a_plan_never_takes_longer_than_there_is(speeds, rows, left):
    plan = make_plan(speeds, rows, min(3000, rows // 3), left)
    assert all(seconds >= 0 for seconds in plan.seconds.values())
    assert sum(plan.seconds.values()) <= left * (1 + 1e-9)
    assert plan.seconds["students"] > 0
    assert 1 <= plan.rows <= rows
    if plan.teacher is not None:
        assert left >= LEAST_SECONDS
        assert plan.teacher.rows <= plan.rows


def test_a_minute_has_no_teacher_and_twenty_have_variants():
    short, long = (make_plan(FAST, 2000, 400, seconds) for seconds in (60, 1200))
    assert short.teacher is None
    assert short.why == "--minutes is too short for a teacher"
    assert long.teacher.epochs == 3
    assert long.teacher.variants == 8
    assert long.teacher.rows == 1600
    assert long.teacher.share(1600) == 1.0
    assert long.teacher.share(3200) == 0.5


def test_less_time_takes_variants_first_then_epochs_then_rows():
    plans = [make_plan(FAST, 60_000, 3000, seconds) for seconds in (6000, 2000, 900, 400)]
    work = [(plan.teacher.variants, plan.teacher.epochs, plan.teacher.rows) for plan in plans]
    assert work == sorted(work, reverse=True)
    assert work[0][0] > 0
    assert work[-1][2] < work[0][2]


def test_no_labelled_row_is_given_up_for_a_teacher():
    for seconds in (120, 240, 400, 900):
        plan = make_plan(FAST, 60_000, 3000, seconds)
        assert plan.rows == 60_000
        assert plan.teacher is None or plan.teacher.rows >= 3000
    assert make_plan(FAST, 60_000, 3000, 120).teacher is None


def test_few_rows_get_more_epochs_and_long_texts_shorter_inputs():
    assert make_plan(FAST, 200, 80, 900).teacher.epochs == 10
    slow = FAST.model_copy(update={"pieces": (128,) * 50, "words": 400, "train": 1500, "infer": 6000})
    assert make_plan(slow, 1700, 500, 1200).teacher.max_tokens == 128
    assert make_plan(slow, 1700, 500, 260).teacher.max_tokens < 128
    assert make_plan(slow.model_copy(update={"train": 50}), 1700, 500, 300).teacher is None


costs = st.dictionaries(
    st.text("abcdefgh", min_size=1, max_size=3),
    st.builds(Cost, fixed=st.floats(0, 30), epoch=st.floats(1e-3, 100), tokens=st.floats(0, 30)),
    min_size=1,
    max_size=8,
)


@given(costs, st.floats(0, 2000), st.integers(1, 3), st.integers(1, 40))
def test_a_rung_fits_its_part_of_the_time_or_has_one_candidate(costs, seconds, left, most):
    rung = plan_rung(costs, seconds, left, most)
    assert rung.names == tuple(costs)[: len(rung.names)]
    assert rung.names
    assert 1 <= rung.epochs <= most
    assert 0 < rung.share <= 1
    assert rung.seconds <= seconds / left + 1e-6 or len(rung.names) == 1


def test_rungs_are_thirds_and_epochs_grow():
    assert rung_sizes(8) == [8, 3, 2]
    assert rung_sizes(1) == [1]
    assert rung_sizes(2) == [2]
    assert rung_sizes(20) == [20, 7, 3, 2]
    cheap = {name: Cost(fixed=1, epoch=1) for name in "abc"}
    assert [plan_rung(cheap, 10_000, left, 18).epochs for left in (3, 2, 1)] == [2, 6, 18]
    assert plan_rung(cheap, 9 + 3, 1, 18).epochs == 3
    assert plan_rung(cheap, 3 + 1.5, 1, 18).share == 0.5
    assert plan_rung(cheap, 3 + 0.15, 1, 18).names == ("a", "b")


def test_a_later_rung_is_never_shorter():
    """With too little time it repeats the rung before, whose students are trained already; the last one has fewer."""
    cheap = {name: Cost(fixed=1, epoch=1) for name in "abc"}
    for left in (1, 2):
        assert plan_rung(cheap, left * (3 + 3 * 5), left, 18, trained=5).epochs == 5
        assert plan_rung(cheap, left * (3 + 3 * 6), left, 18, trained=5).epochs == 6
    repeated = plan_rung(cheap, 2 * (3 + 3 * 4), 2, 18, trained=5)
    assert (repeated.names, repeated.epochs, repeated.share, repeated.seconds) == (("a", "b", "c"), 5, 1, 0)
    fewer = plan_rung(cheap, 3 + 3 * 4, 1, 18, trained=5)
    assert (fewer.names, fewer.epochs) == (("a", "b"), 6)
    assert plan_rung(cheap, 3, 1, 18, trained=5) == plan_rung({"a": cheap["a"]}, 0, 1, 18, trained=5)


def test_the_best_has_the_highest_score_then_the_lowest_loss_then_the_smallest_file():
    def student(name, **result):
        return Trained(name=name, model=name, rung=1, epochs=1, share=1.0, **result)

    students = [
        student("low", score=0.8, loss=0.1, bytes=1),
        student("large", score=0.9, loss=0.3, bytes=9),
        student("small", score=0.9, loss=0.3, bytes=5),
        student("sure", score=0.9, loss=0.2, bytes=9),
    ]
    assert [trained.name for trained in best_first(students)] == ["sure", "small", "large", "low"]


@given(
    st.integers(8000, 2_000_000), st.booleans(), st.integers(0, 30), st.sampled_from([9, 400]), st.integers(50, 30_000)
)
def test_candidates_are_estimated_to_fit(max_bytes, pair, outputs, words, pieces):
    labels = [f"label {i}" for i in range(outputs)]
    found = find_candidates(max_bytes, pair, labels, words, pieces)
    assert len({one.name for one in found}) == len(found)
    for one in found:
        assert packed_bytes(one, pair, labels, one.bits) <= max_bytes
        assert one.bytes <= max_bytes
        assert one.embedding_type != "bpe" or one.vocab_size <= pieces


def test_a_size_too_small_for_any_student_names_one_that_is_enough():
    with pytest.raises(UserError, match=r"--max-bytes 300: too small for any student; give ([0-9,]+) or more") as error:
        find_candidates(300, False, ["a", "b"], 10, 5000)
    enough = int(str(error.value).split("give ")[1].split(" ")[0].replace(",", ""))
    assert find_candidates(enough, False, ["a", "b"], 10, 5000)


def test_widths_are_those_of_the_presets():
    assert [widths(size) for size in (12_000, 32_000, 100_000, 400_000)] == [
        (12, 16, 16),
        (16, 32, 32),
        (24, 64, 64),
        (32, 96, 64),
    ]
    assert widths(10**7) == (32, 96, 64)
    assert widths(10) == (4, 4, 4)


def test_candidates_of_a_size_are_of_every_kind():
    found = find_candidates(32_000, False, ["a", "b"], 15, 30_000)
    assert {one.arch for one in found} == {"ffn", "conv", "bilstm"}
    assert {one.embedding_type for one in found} == {"hash", "bpe"}
    wide, narrow = (next(one for one in found if one.name == name) for name in ("bilstm-bpe16w", "bilstm-bpe16"))
    assert wide.vocab_size > 1.3 * narrow.vocab_size
    assert wide.bits < narrow.bits
    assert isinstance(wide, Candidate)
    assert wide.flags()["student_arch"] == "bilstm"


@pytest.mark.parametrize("symmetric", [False, True])
def test_candidates_for_pairs_align_their_texts(symmetric):
    found = find_candidates(32_000, True, ["a", "b"], 15, 30_000, symmetric)
    assert {one.arch: one.pair_encoder for one in found} == {"ffn": "compare", "conv": "align", "bilstm": "align"}
    assert {one.arch: one.symmetric for one in found} == {"ffn": False, "conv": symmetric, "bilstm": symmetric}
    single = find_candidates(32_000, False, ["a", "b"], 15, 30_000)
    assert not any({"pair_encoder", "symmetric"} & one.flags().keys() for one in single)
