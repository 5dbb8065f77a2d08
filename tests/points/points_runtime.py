"""The kind of points in the runtime, which imports nothing of the program."""

from compression.runtime.kinds import BY_WORD, MULTILABEL, Kind


class Points(Kind):
    name = "points"
    bits, code = BY_WORD | MULTILABEL, 100
    has_probabilities = has_threshold = False

    def probabilities(self, logits, temperature):
        return logits

    def answers(self, model, texts):
        return [tuple(row) for row in model.probabilities(texts).tolist()]

    def lines(self, model, texts):
        return (f"{x:.6f} {y:.6f}" for x, y in self.answers(model, texts))
