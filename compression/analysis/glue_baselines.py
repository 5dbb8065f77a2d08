"""Shapes of the GLUE baselines whose sizes the thesis shows (section 3.7, figures 3.9 and 3.10).

The thesis gives four sizes: 2,950 MB with GloVe for single sentences and 2,968 for pairs, 684 and 703 with ELMo. Wang
et al. (2019) describe a two-layer BiLSTM with 1,500 units per direction and a classifier with 512 hidden units. At four
bytes per weight, the shapes below give 2,949.8, 2,968.2, 684.2 and 702.6 MB. The rest is inferred from the sizes:
- GloVe has 2.2 million vectors of width 300. The published file has 2,196,017, which is 4.8 MB less.
- The classifier has a second hidden layer, 512 to 512. Without it every size is 1.05 MB smaller.
- The BiLSTM reads vectors of width 300 with ELMo too. ELMo's vectors have width 1,024 (Peters et al., 2018); a BiLSTM
  that reads them directly would make the model 34.8 MB larger.
"""

from __future__ import annotations

import itertools

Shape = tuple[int, ...]

NAMES = ("glue-glove", "glue-elmo")
QUOTED_MB = {
    ("glue-glove", False): 2950,
    ("glue-glove", True): 2968,
    ("glue-elmo", False): 684,
    ("glue-elmo", True): 703,
}
"""(name, whether for pairs) -> size in tables 7.1 to 7.3 and 7.5 of the thesis. Quoted, not measured."""

_GLOVE_WORDS, _VECTOR = 2_200_000, 300
_HIDDEN, _LAYERS = 1500, 2
_CLASSIFIER = 512


def glue_shapes(name: str, pair: bool, outputs: int) -> dict[str, Shape]:
    """Return name -> shape of every tensor; names start with embedding, encoder or classifier.

    name: one of NAMES. The classifier of pairs reads [u; v; |u - v|; u * v], four times the width.
    """
    shapes = {"embedding.table": (_GLOVE_WORDS, _VECTOR)} if name == "glue-glove" else _elmo()
    for layer in range(_LAYERS):
        width = _VECTOR if layer == 0 else 2 * _HIDDEN
        for direction in ("forward", "backward"):
            at = f"encoder.{layer}.{direction}"
            shapes |= {f"{at}.weight_ih": (4 * _HIDDEN, width), f"{at}.weight_hh": (4 * _HIDDEN, _HIDDEN)}
            shapes |= {f"{at}.bias_ih": (4 * _HIDDEN,), f"{at}.bias_hh": (4 * _HIDDEN,)}
    widths = (2 * _HIDDEN * (4 if pair else 1), _CLASSIFIER, _CLASSIFIER, outputs)
    for layer, (inputs, width) in enumerate(itertools.pairwise(widths)):
        shapes |= {f"classifier.{layer}.weight": (width, inputs), f"classifier.{layer}.bias": (width,)}
    return shapes


def _elmo() -> dict[str, Shape]:
    """Return the shapes of ELMo's original model, 93,600,864 weights.

    It has character embeddings, convolutions, highway layers, and two LSTMs with projections.
    """
    shapes: dict[str, Shape] = {"embedding.characters": (262, 16)}
    filters = {1: 32, 2: 32, 3: 64, 4: 128, 5: 256, 6: 512, 7: 1024}
    for width, count in filters.items():
        shapes |= {f"embedding.convolution.{width}.weight": (count, 16, width)}
        shapes |= {f"embedding.convolution.{width}.bias": (count,)}
    convolved, projected, cells = sum(filters.values()), 512, 4096
    for layer in range(2):
        at = f"embedding.highway.{layer}"
        shapes |= {f"{at}.weight": (2 * convolved, convolved), f"{at}.bias": (2 * convolved,)}
    shapes |= {"embedding.projection.weight": (projected, convolved), "embedding.projection.bias": (projected,)}
    for layer in range(2):
        for direction in ("forward", "backward"):
            at = f"embedding.lstm.{layer}.{direction}"
            shapes |= {f"{at}.weight": (4 * cells, 2 * projected), f"{at}.bias": (4 * cells,)}
            shapes |= {f"{at}.projection": (projected, cells)}
    return shapes
