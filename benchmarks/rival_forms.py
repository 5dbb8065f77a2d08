"""Run a grid of students (configs/experiments/sweeps/forms*.yaml) with a form that the program does not have.

    python benchmarks/rival_forms.py minGRU configs/experiments/sweeps/forms.yaml --set data_dir=../shared/glue
    python benchmarks/rival_forms.py Hadamard configs/experiments/sweeps/forms-banking77.yaml

minGRU     a GRU whose update gate and candidate read the token alone, not the last state (Feng et al., 2024, "Were RNNs
           All We Needed?", section 3.1); the candidate keeps its tanh. All weights of a GRU that read the state, and
           those of its reset gate, are zero; a packed file holds zeros in next to no bytes.
Hadamard   a BiLSTM whose last layer is not trained: rows of a Hadamard matrix times a scale (Hoffer et al., 2018, "Fix
           your classifier", section 3). A packed file holds it in a bit a weight.
codebook   a BiLSTM whose embedding is a product codebook (Jegou et al., 2011, "Product Quantization for Nearest
           Neighbor Search", section 2): of every four columns, a row stores which of some vectors is nearest. K-means
           finds these again in the course of training. No packed file has this form: its bytes are those of a packed
           file with the embedding's replaced by the entropy of the codes, and a byte for each number of the vectors.

Further arguments are those of `experiment.py sweep`. The layer's class is replaced in this process, in which runs take
turns. Students are reused by their settings, which do not say so: give --workspace a folder of its own, unless no other
grid in it has these shapes.
"""

import argparse
import dataclasses
import math
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import scipy.linalg
import torch
import yaml

from common.cli import run_script
from common.config import load_with_base, parse_flags
from compression.distillation import distill
from compression.experiments.sweep.grid import SweepSettings
from compression.experiments.sweep.runs import report
from compression.packing.pack import packed_sections
from compression.shrinking import quantize
from compression.shrinking.quantization import builder
from compression.shrinking.quantization.scheme import Ranges, Scheme
from compression.shrinking.settings import QuantizeSettings
from compression.shrinking.step import CPU
from compression.students import encoders
from compression.students.layers import Recurrent
from compression.students.saved import load_student
from compression.students.settings import StudentSettings
from compression.students.student import Student
from compression.students.weights import Half
from experiment import main as experiment

scheme_of = quantize.scheme_of
WIDTH = 4
"""Columns of a product codebook's vectors."""
STEPS = 20
"""Steps of k-means."""
UNPACKED = {"compression_actions": ["distill", "quantize"], "max_bytes": None, "quantizer": "coded", "bits": 4}
SHAPES = {
    "minGRU": {
        "32 KB": {"student_arch": "gru", "encoder_hidden_dim": 102},
        "100 KB": {"student_arch": "gru", "encoder_hidden_dim": 199},
    },
    "Hadamard": {
        "32 KB": {"student_arch": "bilstm", "encoder_hidden_dim": 36, "cls_hidden_dim": 72},
        "100 KB": {"student_arch": "bilstm", "encoder_hidden_dim": 64, "cls_hidden_dim": 104},
    },
    "codebook": {
        "32 KB": {
            "student_arch": "bilstm",
            "embedding_dim": 20,
            "encoder_hidden_dim": 36,
            "bits_embedding": 6,
            **UNPACKED,
        },
        "100 KB": {"student_arch": "bilstm", "encoder_hidden_dim": 64, "bits_embedding": 8, **UNPACKED},
    },
}
"""Form -> size -> settings."""


class MinimalGRU(Recurrent):
    """A GRU in which nothing reads the state; the reset gate, which then has no effect, is zero."""

    def __init__(self, arch: str, input_dim: int, hidden_dim: int) -> None:
        super().__init__(arch, input_dim, hidden_dim)
        self.weight_hh.value.requires_grad_(False).zero_()
        with torch.no_grad():
            self.weight_ih.value[:hidden_dim] = 0.0
            self.bias_ih[:hidden_dim] = 0.0


class FixedClassifier(Student):
    """A student whose last layer has rows of a Hadamard matrix, and trains nothing but its bias."""

    def __init__(
        self, arch: str, settings: StudentSettings, outputs: int, pair: bool = False, by_word: bool = False
    ) -> None:
        super().__init__(arch, settings, outputs, pair, by_word)
        last, inputs = self.classifier[-1].weight.value, settings.cls_hidden_dim
        # The first row and the first column are all ones.
        signs = scipy.linalg.hadamard(1 << max(outputs, inputs).bit_length())[1 : outputs + 1, 1 : inputs + 1]
        last.requires_grad_(False).copy_(torch.from_numpy(signs) / inputs**0.5)


class UntrainedSigns(builder.FakeQuantized):
    """As the base, but a matrix of one magnitude is not trained."""

    def __init__(self, weight: torch.Tensor, scheme: Scheme, stochastic: bool = False) -> None:
        super().__init__(weight, scheme, stochastic)
        if len(weight.abs().unique()) == 1:
            self.value.requires_grad_(False)


@dataclasses.dataclass(frozen=True)
class ProductCodebook(Scheme):
    """For each group of WIDTH columns, 2 ** bits vectors, of which a row has the nearest."""

    def fit(self, weight: torch.Tensor) -> Ranges:
        """Return the vectors, float32 [groups, 2 ** bits, WIDTH]."""
        return {"vectors": torch.stack([self._k_means(group) for group in _groups(weight)])}

    def code(self, weight: torch.Tensor, ranges: Ranges) -> Half:
        """Return the nearest vectors, in place of their codes."""
        pairs = zip(_groups(weight), ranges["vectors"], strict=True)
        return Half(torch.cat([vectors[torch.cdist(group, vectors).argmin(1)] for group, vectors in pairs], 1))

    def _k_means(self, group: torch.Tensor) -> torch.Tensor:
        """Return vectors of locally least squared error, rounded to 255 values."""
        # The rows from which it starts are the same in every fit.
        rows = torch.randperm(len(group), generator=torch.Generator().manual_seed(0))[: 2**self.bits]
        vectors = group[rows].clone()
        for _ in range(STEPS):
            codes = torch.cdist(group, vectors).argmin(1)
            members = torch.bincount(codes, minlength=len(vectors))[:, None]
            means = torch.zeros_like(vectors).index_add_(0, codes, group) / members.clamp(min=1)
            vectors = torch.where(members > 0, means, vectors)
        step = vectors.abs().max() / 127
        return (vectors / step).round() * step


def _groups(weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return weight.split(WIDTH, 1)


def with_codebook(settings: QuantizeSettings, part: str) -> Scheme:
    """Return the scheme of a part's matrices: a product codebook for the embedding."""
    scheme = scheme_of(settings, part)
    return ProductCodebook(**dataclasses.asdict(scheme)) if part == "embedding" else scheme


def bytes_with_codebook(folder: Path) -> int:
    """Return the bytes that a student with a product codebook would have in a packed file. folder: the student's."""
    student, tokenizer, config = load_student(folder, CPU)
    table = student.embedding.table.weight.dense()
    sections = packed_sections(student, tokenizer, config)
    size = sum(section.bytes for section in sections if not section.name.startswith("embedding.table"))
    for group in _groups(table):
        vectors, counts = group.unique(dim=0, return_counts=True)
        size += torch.special.entr(counts / len(group)).sum().item() / math.log(2) * len(group) / 8 + vectors.numel()
    return math.ceil(size)


def main() -> None:
    """Replace the classes of a form, and sweep its grid."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("form", choices=list(SHAPES), help="the form")
    parser.add_argument("grid", type=Path, help="the grid's file")
    args, flags = parser.parse_known_args()
    if args.form == "minGRU":
        encoders.Recurrent = MinimalGRU
    elif args.form == "codebook":
        quantize.scheme_of = with_codebook
    else:
        distill.Student, builder.FakeQuantized = FixedClassifier, UntrainedSigns
    rules = [{"when": {"size": size}, "set": settings} for size, settings in SHAPES[args.form].items()]
    if args.form == "codebook" and args.grid.stem == "forms-banking77":
        # Many of its byte pairs are too rare to be trained, and take few bits: the embedding is wider in their place.
        rules.append({"when": {"size": "100 KB"}, "set": {"embedding_dim": 44}})
    name = f"{args.grid.stem}-{args.form.lower()}"
    grid = load_with_base(args.grid)
    grid |= {"name": name, "axes": {**grid["axes"], "form": {args.form: {}}}, "rules": rules}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, f"{name}.yaml")
        file.write_text(yaml.safe_dump(grid, sort_keys=False))
        sys.argv[1:] = ["sweep", str(file), "--launcher", "local", *flags]
        experiment()
    if args.form == "codebook" and "--dry-run" not in flags:
        settings = parse_flags(SweepSettings, flags, None)
        for row in report(settings.paths, settings.name or name)[1]:
            if row["stage"] == "quantized":
                size = bytes_with_codebook(settings.paths.model(row["task"], row["model"]))
                print(f"{row['model']}: {size:,} bytes")


if __name__ == "__main__":
    run_script(main)
