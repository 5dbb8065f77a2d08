"""One label a text: int64 [n], -1 if unknown."""

from common.kinds.base import Kind


class Labels(Kind):
    """One label a text: the index of its class, int64 [n], -1 if unknown."""

    name = "labels"
    metrics = ("accuracy", "f1", "f1_macro", "matthews")
    default_metrics = ("accuracy",)
    one_class = True
    fits = True
    for_fairseq = True
