"""Errors of decompositions of a student's matrices, at an equal number of weights.

    python benchmarks/decompositions.py workspace/models/sst-2/NAME workspace/models/mrpc/NAME --logits

The table has the squared error relative to the sum of a matrix's squares, as mean over the matrices of a kind. A
decomposition has at most as many weights as the product of two matrices with the highest rank within a share of them:

    low rank        that product
    Kronecker       a sum of Kronecker products, over all block sizes (Van Loan and Pitsianis, 1993)
    tensor train    of three cores, over all factors of rows and columns (Novikov et al., 2015; of embeddings: Khrulkov
                    et al., 2019, with rows of zeros, so that the number of rows has small factors)
    Tucker, gates   of an LSTM's matrix as a tensor [gates, units, columns]
    folded          low rank of an alignment's matrix whose weights of the difference of two vectors are added to those
                    of the vectors: the student is the same, and a quarter of the matrix is zero (only for --logits)

Others decompose several matrices together: the same one in all layers or both directions, both of a recurrent layer, or
all that have equal rows or columns. Each is divided by its norm, so that they count alike.

    ranks allotted  a product for each matrix, with ranks that make the mean error small
    shared right    the same right factor for all matrices (Prabhavalkar et al., 2016)
    shared left     the same left factor for all matrices (Kuchaiev and Ginsburg, 2017)
    Tucker, joint   of the tensor [matrices, rows, columns]

With --logits, the table also has for each kind how much the logits change on validation if all of its matrices are
replaced: the squared change relative to the logits' variance. There, low rank weights the rows of an embedding by their
use, as `factorize` does; elsewhere all rows count alike.
"""

import argparse
import itertools
import math
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch
from logits_change import LogitsProbe
from nearest import (
    allotted_error,
    block_losses,
    losses,
    nearest_kronecker,
    nearest_train,
    nearest_tucker,
    product_error,
    relative_error,
    smooth,
)

from common.cli import print_json, run_script
from common.errors import UserError
from common.progress import say
from common.tables import text_table
from common.training.checkpoint import load_weights
from common.training.models import read_config
from compression.runtime.shapes import GATES
from compression.shrinking.factorize import OUTPUT_LAYER, low_rank

KINDS = {
    "embedding": r"^embedding\.table",
    "input": r"weight_ih",
    "recurrent": r"weight_hh",
    "alignment": r"alignment\.fusion",
    "attention": r"\.attention\.",
    "feed-forward": r"\.(up|down)\.",
    "classifier": r"^classifier",
    "other": "",
}
"""Kind of matrix -> pattern of its name."""
LAYER, ROWS, COLUMNS = "recurrent layer", "equal rows", "equal columns"
"""Kinds of groups of matrices of different kinds."""
LOGITS = {kind: f"logits, {kind}" for kind in KINDS}
FOLDED = "folded"
METHODS = ("low rank", "Kronecker", "tensor train", "Tucker, gates", FOLDED,
           "ranks allotted", "shared right", "shared left", "Tucker, joint")  # fmt: skip
SMALLEST = 8
"""Matrices with fewer rows or columns are left out."""
Errors = dict[str, float]
"""Method -> error; those that do not apply are left out."""
Tensors = dict[str, torch.Tensor]


def student_matrices(folder: Path) -> tuple[Tensors, int]:
    """Return a student's matrices, and the gates of its recurrent layers.

    Raises UserError if it is factorized or quantized.
    """
    arch, tensors = read_config(folder).arch, load_weights(folder)
    if any(name.endswith((".codes", ".left.value")) for name in tensors):
        raise UserError(f"{folder}: this benchmark is of students before they are factorized or quantized")
    matrices = {name.removesuffix(".value"): tensor.float() for name, tensor in tensors.items() if tensor.dim() == 2}
    chosen = {
        name: tensor for name, tensor in matrices.items() if min(tensor.shape) >= SMALLEST and name != OUTPUT_LAYER
    }
    return chosen, len(GATES[arch]) if arch in GATES else 1


def rank_within(shape: Sequence[int], share: float) -> int:
    """Return the highest rank of a product that has at most this share of a matrix's weights, at least 1."""
    return max(1, int(share * math.prod(shape) / sum(shape)))


def alone(name: str, weight: torch.Tensor, gates: int, share: float) -> Tensors:
    """Return the nearest decompositions of one matrix within a share of its weights, dense, by method."""
    rows, columns = weight.shape
    rank = rank_within(weight.shape, share)
    budget = rank * (rows + columns)
    fill = smooth(rows) - rows if name.startswith("embedding.") else 0
    filled = torch.nn.functional.pad(weight, (0, 0, 0, fill))
    lost = block_losses(filled)
    nearest = {
        "low rank": low_rank(weight, rank).dense().detach(),
        "Kronecker": nearest_kronecker(filled, lost, budget),
        "tensor train": nearest_train(filled, lost, budget),
    }
    if gates > 1 and "_rnn." in name:
        nearest["Tucker, gates"] = nearest_tucker(weight.view(gates, -1, columns), budget)
    if kind_of(name) == "alignment":
        nearest[FOLDED] = nearest_folded(weight, budget)
    return {method: near.reshape(-1, columns)[:rows] for method, near in nearest.items() if near is not None}


def nearest_folded(weight: torch.Tensor, budget: int) -> torch.Tensor:
    """Return a matrix of low rank for an alignment, whose input is [own; read; own - read; own * read]."""
    of_own, of_read, of_difference, of_product = weight.chunk(4, 1)
    folded = torch.cat([of_own + of_difference, of_read - of_difference, of_product], 1)
    near = low_rank(folded, min(budget // sum(folded.shape), len(folded))).dense().detach()
    itself, read, product = near.chunk(3, 1)
    return torch.cat([itself, read, torch.zeros_like(itself), product], 1)


def together(kind: str, weights: Sequence[torch.Tensor], shares: Sequence[float]) -> list[Errors]:
    """Return the mean errors of decompositions of several matrices for each share of their weights."""
    weights = [weight / weight.norm() for weight in weights]
    lost, shapes = [losses(weight) for weight in weights], [weight.shape for weight in weights]
    equal_rows, equal_columns = (len(set(lengths)) == 1 for lengths in zip(*shapes, strict=True))
    joined = {}
    if equal_columns and kind != ROWS:
        joined["shared right"] = torch.cat(weights)
    if equal_rows and kind != COLUMNS:
        joined["shared left"] = torch.cat(weights, 1)
    lost_of = {method: losses(matrix) for method, matrix in joined.items()}
    of_shares: list[Errors] = []
    for share in shares:
        budget = sum(rank_within(shape, share) * sum(shape) for shape in shapes)
        errors = {"ranks allotted": allotted_error(lost, shapes, budget)}
        errors |= {method: product_error(lost_of[method], matrix.shape, budget) for method, matrix in joined.items()}
        stacked = torch.stack(weights) if kind in KINDS else None
        if stacked is not None and (near := nearest_tucker(stacked, budget)) is not None:
            errors["Tucker, joint"] = relative_error(near, stacked)
        of_shares.append(errors)
    return of_shares


def groups(names: dict[str, Sequence[int]]) -> dict[tuple[str, str], list[str]]:
    """Return the matrices that are decomposed together, at least two, by kind. names: name -> shape."""
    members_of = defaultdict(list)
    for name, (rows, columns) in names.items():
        members_of[kind_of(name), re.sub(r"\.\d+\.|\.forward_|\.backward_", ".", name)].append(name)
        members_of[ROWS, str(rows)].append(name)
        members_of[COLUMNS, str(columns)].append(name)
        if "_rnn." in name:
            members_of[LAYER, name.rpartition(".")[0]].append(name)
    return {group: members for group, members in members_of.items() if len(members) > 1}


def kind_of(name: str) -> str:
    """Return a matrix's kind."""
    return next(kind for kind, pattern in KINDS.items() if re.search(pattern, name))


def measure(folder: Path, shares: Sequence[float], probe: LogitsProbe | None = None) -> list[dict[str, Any]]:
    """Return a row for each matrix and each group of a student, and with a probe for each kind of matrix.

    errors: for each share; count: number of matrices of which they are means.
    """
    weights, gates = student_matrices(folder)
    near, rows = {}, []
    for name, weight in weights.items():
        say(f"{folder.name}: {name} {list(weight.shape)}")
        near[name] = [alone(name, weight, gates, share) for share in shares]
        errors = [
            # A folded matrix is another one even if nothing is left out.
            {method: relative_error(dense, weight) for method, dense in by_method.items() if method != FOLDED}
            for by_method in near[name]
        ]
        rows.append(_row(folder, kind_of(name), [name], errors) | {"weights": weight.numel()})
    low = {row["matrices"][0]: [errors["low rank"] for errors in row["errors"]] for row in rows}
    for (kind, of), names in groups({name: weight.shape for name, weight in weights.items()}).items():
        say(f"{folder.name}: {kind} {of}")
        errors = together(kind, [weights[name] for name in names], shares)
        if kind not in KINDS:  # those have rows with low rank
            low_rank_means = map(statistics.fmean, zip(*(low[name] for name in names), strict=True))
            errors = [of_share | {"low rank": mean} for of_share, mean in zip(errors, low_rank_means, strict=True)]
        rows.append(_row(folder, kind, names, errors))
    if probe:
        for name in near.keys() & probe.uses.keys():
            for by_method, share in zip(near[name], shares, strict=True):
                product = low_rank(weights[name], rank_within(weights[name].shape, share), probe.uses[name])
                by_method["low rank"] = product.dense().detach()
        rows += logits_rows(folder, near, probe)
    return rows


def logits_rows(folder: Path, near: dict[str, list[Tensors]], probe: LogitsProbe) -> list[dict[str, Any]]:
    """Return a row for each kind: the changes of the logits. near: name -> decompositions for each share, by method."""
    rows = []
    for kind in dict.fromkeys(map(kind_of, near)):
        say(f"{folder.name}: {LOGITS[kind]}")
        names = [name for name in near if kind_of(name) == kind]
        errors: list[Errors] = []
        for of_share in zip(*(near[name] for name in names), strict=True):
            methods = [method for method in METHODS if all(method in of_name for of_name in of_share)]
            replaced = {m: {name: of_name[m] for name, of_name in zip(names, of_share, strict=True)} for m in methods}
            errors.append({method: probe.change(matrices) for method, matrices in replaced.items()})
        rows.append(_row(folder, LOGITS[kind], names, errors) | {"count": 1})
    return rows


def _row(folder: Path, kind: str, names: list[str], errors: list[Errors]) -> dict[str, Any]:
    return {"student": folder.name, "kind": kind, "matrices": names, "count": len(names), "errors": errors}


def means(rows: list[dict[str, Any]], shares: Sequence[float]) -> list[dict[str, Any]]:
    """Return a row for each kind and share: the mean error by method, None if none applies.

    part: of a student's weights, as mean over the students that have the kind.
    """
    all_weights, lines = _weights(rows), []
    for kind, (index, share) in itertools.product((*KINDS, LAYER, ROWS, COLUMNS, *LOGITS.values()), enumerate(shares)):
        of_kind = [row for row in rows if row["kind"] == kind]
        parts = [weights / all_weights[student] for student, weights in _weights(of_kind).items()]
        line: dict[str, Any] = {"kind": kind, "part": statistics.fmean(parts) if parts else None, "share": share}
        for method in METHODS:
            with_it = [row for row in of_kind if method in row["errors"][index]]
            total = sum(row["errors"][index][method] * row["count"] for row in with_it)
            line[method] = total / sum(row["count"] for row in with_it) if with_it else None
        lines += [line] if of_kind else []
    return lines


def _weights(rows: list[dict[str, Any]]) -> dict[str, int]:
    """Return the number of weights of each student's matrices."""
    weights: dict[str, int] = defaultdict(int)
    for row in rows:
        if "weights" in row:
            weights[row["student"]] += row["weights"]
    return weights


def describe(lines: list[dict[str, Any]]) -> str:
    """Return the means as a table."""
    header = ["kind", "of all weights", "kept", *METHODS]
    body = [
        [
            line["kind"],
            "" if line["part"] is None else f"{line['part']:.0%}",
            f"{line['share']:.0%}",
            *("" if line[method] is None else f"{line[method]:.3f}" for method in METHODS),
        ]
        for line in lines
    ]
    return text_table(header, body)


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("students", nargs="+", type=Path, help="folders of students, neither factorized nor quantized")
    parser.add_argument("--shares", type=float, nargs="+", default=[0.25, 0.5], help="of the weights that are kept")
    parser.add_argument("--logits", action="store_true", help="measure logits, with the data of the folder's workspace")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args()
    torch.set_num_threads(1)  # more make it no faster: most matrices are small
    rows = []
    for folder in args.students:
        rows += measure(folder, args.shares, LogitsProbe(folder) if args.logits else None)
    lines = means(rows, args.shares)
    print_json({"means": lines, "rows": rows}) if args.json else print(describe(lines))


if __name__ == "__main__":
    run_script(main)
