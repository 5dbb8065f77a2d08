"""A student's spec lists the names and shapes that the torch model really has."""

import pytest
import tiny

from compression.students.settings import StudentSettings
from compression.students.spec import PARTS, StudentSpec
from compression.students.student import Student
from compression.students.weights import matrices

SIZES = {"embedding_dim": 5, "vocab_size": 30, "encoder_hidden_dim": 4, "cls_hidden_dim": 6, "max_tokens": 20}
SIZES |= {"heads": 2, "layers": 2, "iterations": 3, "intermediate_dim": 7, "adapters": 3}


@pytest.mark.parametrize(("arch", "embedding", "pooling", "pair"), tiny.STUDENT_KINDS)
def test_the_spec_lists_the_shapes_of_the_torch_model(arch, embedding, pooling, pair):
    settings = StudentSettings(embedding_type=embedding, pooling=pooling, **SIZES)
    student, spec = Student(arch, settings, 3, pair), StudentSpec(arch, settings, 3, pair)
    own = {name: tuple(matrix.dense().shape) for name, matrix in matrices(student)}
    for name, parameter in student.named_parameters():
        if name.removesuffix(".value") not in own:
            own[name.removesuffix("_ih").removesuffix("_hh")] = tuple(parameter.shape)  # two recurrent biases are one
    assert spec.shapes() == own
    assert {name: tuple(student.vector(name).shape) for name in spec.vectors()}.items() <= own.items()
    assert {name.split(".")[0] for name in own} <= set(PARTS)
