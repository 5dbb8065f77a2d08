"""Rows that the settings of distillation name: found in the workspace and read, as `Distill` does."""

from common.store.artifact import paths_of
from common.teachers.guided import held_out_inputs, learning_inputs
from compression.distillation import dataset


def inputs_of(settings, task):
    """Paths of the rows and, unless labels alone are learned from, of the teacher's logits."""
    teacher = dataset.find_teacher(settings, task)
    return paths_of(learning_inputs(settings.paths, task, settings.augmented_sets, teacher))


def distillation_set(settings, task):
    return dataset.distillation_set(inputs_of(settings, task), task, settings, settings.seed)


def distillation_text(settings, task, validation=False):
    inputs = paths_of(learning_inputs(settings.paths, task, settings.augmented_sets))
    return dataset.distillation_text(inputs, settings, settings.seed, validation)


def held_out_rows(settings, task, teacher):
    name = task.selection_split(settings.select_on)
    return dataset.held_out_rows(paths_of(held_out_inputs(settings.paths, task, name, teacher)), task, name)
