"""A kind of task outside the program. Each text has a point on a map: two numbers from 0 to 1."""

import numpy as np

from common.errors import UserError
from common.kinds.base import Kind


class Points(Kind):
    """Two numbers a text: float32 [n, 2], NaN if unknown. In files they are one cell, with a space between them."""

    name = "points"
    metrics = default_metrics = ("closeness",)
    fixed_labels = value_names = ("x", "y")
    has_classes = has_probabilities = False
    is_scaled = True
    dtype, unknown = np.float32, np.nan
    has_distributions = False

    def parser(self, task, names):
        def parse(text):
            try:
                x, y = map(float, text.split())
            except ValueError:
                raise UserError(f"{text!r} is not two numbers") from None
            return np.float32([x, y])

        return parse

    def shape(self, task):
        return (2,)

    def labelled(self, labels):
        return ~np.isnan(labels).any(1)

    def column(self, labels):
        import pyarrow as pa

        return pa.FixedSizeListArray.from_arrays(pa.array(labels.ravel()), 2)

    def from_column(self, column):
        return column.combine_chunks().flatten().to_numpy().reshape(-1, 2)

    def counts(self, labels, task):
        return None

    def balance(self, labels, task):
        return {"mean x": round(float(labels[:, 0].mean()), 4), "mean y": round(float(labels[:, 1].mean()), 4)}

    def label_loss(self, logits, targets):
        return (logits - targets).square().mean()

    def choices(self, task, logits, threshold=0.5):
        return logits

    def scores(self, task, labels, chosen, contexts):
        """1 minus the mean distance."""
        return {"closeness": 1 - float(np.hypot(*(labels - chosen).T).mean())}

    def prediction_columns(self, labels, chosen, contexts):
        return {"label": self.column(labels), "prediction": self.column(chosen.astype(np.float32))}
