"""A toy of each registry. `register` adds them before flags are made, as a record in the registry's dict would."""

import torch

from common.progress import nothing

RAN = []
"""Jobs that the toy launcher ran."""


def mae(student, teacher, temperature, independent):
    return (student - teacher).abs().mean()


class OneAfterAnother:
    at_once = 1

    def __init__(self, function, jobs, asked):
        self.function = function

    def start(self, jobs):
        for job in jobs:
            self.function(job, nothing)
            RAN.append(job)
        return list(map(id, jobs))

    def ended(self, running):
        return running

    def result(self, handle):
        pass

    def ask_to_stop(self, running):
        pass

    def close(self, running):
        pass


def edited_once(settings, paths, task):
    from compression.augmentation.step import edits

    return edits(settings.model_copy(update={"variants": 1}), paths, task)


def signs(groups, levels, ranges):
    """Scales for codes 0, 1 and 2: the mean magnitude, with its sign or without."""
    scale = groups.abs().mean(1, keepdim=True).clamp(min=1e-3).bfloat16().float()
    return {"scale": scale, "zero_point": torch.ones_like(scale, dtype=torch.uint8)}


def first_columns(weight, rank, uses):
    """The first columns of the matrix, and zeros."""
    from compression.students.weights import Dense, Product

    return Product(Dense(weight[:, :rank].clone()), Dense(torch.eye(rank, weight.shape[1])))


def register():
    from common.launch.launcher import LAUNCHERS, Place
    from common.training.distillation_losses import LOSSES, DistillationLoss
    from compression.augmentation.methods import METHODS, Method
    from compression.shrinking.choices import DECOMPOSITIONS, QUANTIZERS, Decomposition, Quantizer

    LOSSES["mae"] = DistillationLoss("absolute error of logits", "toy_choices:mae")
    LAUNCHERS["in-turn"] = Place("one job after another", "toy_choices:OneAfterAnother", settings=("workers",))
    METHODS["edited-once"] = Method("one edited variant", "toy_choices:edited_once", settings=("least_words",))
    QUANTIZERS["signs"] = Quantizer("signs and zeros", "toy_choices:signs", "s", values=3, columns=False)
    DECOMPOSITIONS["first"] = Decomposition("the first columns", "toy_choices:first_columns", "1")
