"""Movement pruning: scores are learned as in the paper, and choose the weights in use."""

import shrunk
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compression.shrinking.pruning.movement import MovementPruner, Scored
from compression.shrinking.pruning.weights import prunable
from compression.students.weights import Dense, matrices


def test_a_scored_matrix_learns_as_equation_3_says():
    torch.manual_seed(0)
    value, inputs, used = torch.randn(3, 4), torch.randn(5, 4), torch.rand(3, 4) > 0.5
    matrix = Scored(value)
    matrix.used.copy_(used)
    assert torch.equal(matrix.dense(), value * used)
    assert not matrix.scores.any()  # computing leaves the scores as they are
    masked = (value * used).requires_grad_()
    (inputs @ masked.T).square().sum().backward()
    for _ in range(2):
        (inputs @ matrix.dense().T).square().sum().backward()
    assert torch.allclose(matrix.scores, -2 * masked.grad * value)  # of unused weights as well
    assert torch.allclose(matrix.value.grad, 2 * masked.grad * used)
    assert matrix.scores[~used].abs().min() > 0


def test_rows_of_a_scored_matrix_are_rows_of_its_whole():
    matrix = Scored(torch.randn(6, 2))
    matrix.used[::2] = False
    ids = torch.tensor([[5, 0], [3, 5]])
    assert torch.equal(matrix.select(ids), matrix.dense()[ids])
    matrix.select(ids).sum().backward()
    assert (matrix.scores != 0).all(1).nonzero().flatten().tolist() == [0, 3, 5]
    assert not matrix.scores[[1, 2, 4]].any()


def pruner_of(student, **given):
    settings = tiny.compress_settings(task="sst-2", prune_movement=True, **given)
    return MovementPruner(student, "rnn", "bpe", settings)


@settings(max_examples=25)
@given(st.floats(0, 0.99), st.booleans(), st.floats(0.6, 1.0))
def test_exactly_the_weights_of_the_highest_scores_are_used(share, local, progress):
    student = shrunk.fresh("rnn")
    pruner = pruner_of(student, prune_threshold=share, prune_local=local)
    before = {part.name: part.weight.detach().clone() for part in pruner.parts}
    for part in pruner.parts:
        part.scores.copy_(torch.randn_like(part.scores))
    scores = {part.name: part.scores.clone() for part in pruner.parts}
    pruner.step(0.0, progress)
    pruner.finish()
    assert all(isinstance(matrix, Dense) for _, matrix in matrices(student))
    after = {part.name: part.weight.detach() for part in prunable(student, "rnn", "bpe")}
    for names in [[name] for name in after] if local else [list(after)]:
        kept = torch.cat([after[name].flatten() != 0 for name in names])
        values = torch.cat([scores[name].flatten() for name in names])
        assert int((~kept).sum()) == round(share * len(kept))
        if 0 < kept.sum() < len(kept):
            assert values[kept].min() >= values[~kept].max()
    for name, weight in after.items():
        assert torch.equal(weight[weight != 0], before[name][weight != 0])


def test_an_unused_weight_comes_back_when_its_score_rises():
    student = shrunk.fresh("rnn")
    pruner = pruner_of(student, prune_threshold=0.5, prune_local=True)
    table = student.embedding.table.weight
    for score, used, progress in ((-1.0, False, 0.7), (1.0, True, 0.8)):
        table.scores[0] = score
        pruner.step(progress - 0.1, progress)
        assert (table.used[0] == used).all()
