"""A student's logits and gradients, alone and in batches of other rows; the shapes of its weights."""

from collections.abc import Callable

import torch

from compression.students.batch import Batch
from compression.students.spec import PARTS, StudentSpec
from compression.students.student import Student
from compression.students.weights import matrices


def check_rows_do_not_depend_on_the_batch(student: Student, batch_of: Callable[[list[int]], Batch]) -> None:
    """Assert that a row of five has the same logits and gradients in any batch. batch_of: of row numbers."""

    def both(rows, index):
        student.zero_grad()
        logits = student(batch_of(rows))[index]
        (logits * torch.tensor([1.0, -2.0, 0.5])).sum().backward()
        return [logits.detach(), *(p.grad.clone() for p in student.parameters())]

    for row in range(5):
        alone = both([row], 0)
        for rows in ([0, 1, 2, 3, 4], [row, row, 3]):
            torch.testing.assert_close(both(rows, rows.index(row)), alone, atol=1e-5, rtol=1e-4)


def check_every_weight_learns(student: Student, batch: Batch) -> None:
    """Assert that every parameter has a gradient, and that dropout works in training only. student: in eval mode."""
    logits = student(batch)
    logits.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in student.parameters())
    assert torch.equal(student(batch), logits)
    assert not torch.equal(student.train()(batch), logits)


def check_shapes(student: Student, spec: StudentSpec) -> None:
    """Assert that the spec lists the shapes of the student's weights."""
    own = {name: tuple(matrix.dense().shape) for name, matrix in matrices(student)}
    for name, parameter in student.named_parameters():
        if name.removesuffix(".value") not in own:
            own[name.removesuffix("_ih").removesuffix("_hh")] = tuple(parameter.shape)  # two recurrent biases are one
    assert spec.shapes() == own
    assert {name: tuple(student.vector(name).shape) for name in spec.vectors()}.items() <= own.items()
    assert {name.split(".")[0] for name in own} <= set(PARTS)
