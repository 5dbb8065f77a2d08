"""Text output of analyze.py: the result of compression.analysis.analyze.analyze as sentences and tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from common.tables import UNITS, human_bytes, text_table


def describe(result: dict[str, Any]) -> str:
    """Return an analysis's result as text, with a paragraph or table for each entry."""
    name = f"{result['model']} ({result['stage']} {result['arch']})" if "stage" in result else result["model"]
    paragraphs = [writer(result[key]) for key, writer in _WRITERS.items() if key in result]
    return "\n\n".join([f"{name}, task {result['task']}. {UNITS}", *paragraphs])


def _model_size(size: dict[str, Any]) -> str:
    if "thesis_megabytes" in size:
        return _baseline_size(size)
    parts = size["parts"]
    whole = {key: sum(part[key] for part in parts.values()) for key in ("parameters", "nonzero", "bytes")}
    whole["sparsity"] = 1 - whole["nonzero"] / max(1, whole["parameters"])
    body = [
        [name, f"{p['parameters']:,}", f"{p['nonzero']:,}", f"{p['sparsity']:.1%}", f"{p['bytes']:,}"]
        for name, p in {**parts, "all": whole}.items()
    ]
    header = ["part", "parameters", "nonzero", "sparsity", "bytes"]
    types = ", ".join(f"{of['count']:,} {name} ({of['bytes']:,} bytes)" for name, of in size["stored"].items())
    sums = size["bytes"]
    return (
        f"{text_table(header, body)}\n"
        f"stored as {types}\n"
        f"{sums['tensors']:,} bytes of tensors + {sums['header']:,} of header = {sums['file']:,}, "
        "all weights in one file"
    )


def _baseline_size(size: dict[str, Any]) -> str:
    total = sum(part["parameters"] for part in size["parts"].values())
    body = [[name, f"{p['parameters']:,}", f"{p['parameters'] / total:.1%}"] for name, p in size["parts"].items()]
    body.append(["all", f"{total:,}", ""])
    return (
        f"{text_table(['part', 'parameters', 'share'], body)}\n"
        f"{size['bytes']['computed'] / 1e6:,.1f} MB at four bytes each; the thesis has "
        f"{size['thesis_megabytes']:,} MB (quoted). Counted from a reconstruction, "
        "see compression/analysis/glue_baselines.py."
    )


def _model_disk_size(size: dict[str, Any]) -> str:
    text = f"on disk: {size['bytes']:,} bytes ({human_bytes(size['bytes'])}), {size['file']}"
    whole = size["bytes_model"]
    if whole == size["bytes"]:
        return text
    return f"{text}\nin one file with the weights that it belongs to: {whole:,} bytes ({human_bytes(whole)})"


def _theoretical_size(size: dict[str, Any]) -> str:
    total, tensors = size["total"], size["tensors"]
    parts: dict[str, dict[str, int]] = {}
    for tensor in tensors:
        part = parts.setdefault(tensor["part"], {"dense": 0, "coo": 0})
        part["dense"] += tensor["dense"]
        part["coo"] += tensor["coo"]
    body = [
        [name, f"{of['dense']:,}", f"{of['coo']:,}", "coordinates" if of["coo"] < of["dense"] else "dense"]
        for name, of in {**parts, "all": total}.items()
    ]
    sparse = sum(tensor["smaller"] == "coo" for tensor in tensors)
    return (
        f"gzipped: {size['gzip']:,} bytes ({human_bytes(size['gzip'])})\n"
        f"{text_table(['weights', 'dense', 'coordinates', 'smaller'], body, [False, True, True, False])}\n"
        f"{sparse} of {len(tensors)} tensors are smaller in coordinate form (--json lists each)"
    )


def _weight_thresholds(rows: list[dict[str, Any]]) -> str:
    limits = list(rows[0]["below"])
    body = []
    for row in rows:
        below = (f"{row['below'][limit]:,} ({row['share'][limit]:.1%})" for limit in limits)
        body.append([row["name"], f"{row['count']:,}", *below])
    return text_table(["tensor", "weights", *(f"|w| < {limit}" for limit in limits)], body)


def _named_params(rows: list[dict[str, Any]]) -> str:
    body = [
        [row["name"], " x ".join(map(str, row["shape"])), row["dtype"], f"{row['count']:,}", f"{row['bytes']:,}"]
        for row in rows
    ]
    return text_table(["tensor", "shape", "type", "count", "bytes"], body, [False, False, False, True, True])


def _bytes(packed: dict[str, Any]) -> str:
    size, weights = (sum(row[key] for row in packed["tensors"]) for key in ("bytes", "weights"))
    whole = {"name": "all", "bytes": size, "share": 1, "weights": weights, "streams": []}
    rows = [*packed["tensors"], {**whole, "bits_per_weight": 8 * size / max(1, weights)}]
    body = []
    for row in rows:
        of_weights = [f"{row['weights']:,}", f"{row['bits_per_weight']:.2f}"] if row["weights"] else ["", ""]
        streams = ", ".join(f"{of['stream']} {of['bytes']:,} {of['coder']}".strip() for of in row["streams"])
        body.append([row["name"], f"{row['bytes']:,}", f"{row['share']:.1%}", *of_weights, streams])
    header = ["packed", "bytes", "share", "weights", "bits a weight", "streams and their coders"]
    table = text_table(header, body, [False, True, True, True, True, False])
    return f"{table}\nthe packed file: {packed['file']:,} bytes ({human_bytes(packed['file'])})"


def _pictures(paths: list[str]) -> str:
    return "saved " + ", ".join(paths)


_WRITERS: dict[str, Callable[[Any], str]] = {
    "model_size": _model_size,
    "model_disk_size": _model_disk_size,
    "theoretical_size": _theoretical_size,
    "weight_thresholds": _weight_thresholds,
    "named_params": _named_params,
    "weight_hist": _pictures,
    "pie_chart": _pictures,
    "attention": _pictures,
    "bytes": _bytes,
    "treemap": _pictures,
}
