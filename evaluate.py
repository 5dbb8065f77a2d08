"""Score a saved model, teacher or student, on its task's test split.

    python evaluate.py --task sst-2 --model-name minilm
    python evaluate.py --task sst-2 --model-name bilstm-bpe25-a0-aug-s3201976+p+q --time --json
    python evaluate.py --task sst-2 --model-name bilstm-bpe25-a0-aug-s3201976+p+q --packed
    python evaluate.py --task sst-2 --model-name sst-2-12k
    python evaluate.py --model-name reviews.fwt --data new.csv --text review --label verdict
    python evaluate.py --task ax --model-name bilstm-of-mnli
    python evaluate.py --task sst-2 --model-name sst-2-12k --probe configs/probes/gender.yaml

Test is GLUE's dev set (its own test set has no labels); MNLI has two, matched and mismatched.
GLUE's diagnostic set, ax, scores the models of mnli.
"""

from typing import Any

from common.cli import print_json, run_script
from common.config import parse_flags
from common.progress import show_bars
from common.tables import human_bytes, scores_text, text_table
from compression.evaluation.evaluate import evaluate
from compression.evaluation.probe import probe, probe_text
from compression.evaluation.settings import EvaluateSettings
from compression.experiments.report.results import mean_over_splits


def main() -> None:
    """Parse flags, score the model, and print the results."""
    settings = parse_flags(EvaluateSettings, None, __doc__)
    show_bars(settings.loadbar)
    if settings.probe is not None:
        probed = probe(settings)
        print_json(probed) if settings.json_ else print(probe_text(probed))
        return
    rows = evaluate(settings)
    if settings.json_:
        print_json(rows)
        return
    for row in rows:
        scores = _scores(row)
        scores += f" (threshold {row['threshold']:.4f})" if "threshold" in row else ""
        scores += f", ece {row['ece']:.4f}" if "ece" in row else ""
        print(f"{row['model']} on {row['task']} {row['split']} ({row['rows']:,} rows): {scores}; {_sizes(row)}")
        if "speed" in row:
            print(f"  {_speed(row['speed'])}")
        if "per_label" in row:
            print(_per_label(row["per_label"]))
    splits = [row["split"] for row in rows]
    if len(rows) > 1 and (mean := mean_over_splits(rows, splits)):
        print(f"{mean['model']} on {mean['task']}, mean of {mean['split']}: {_scores(mean)}")


def _scores(row: dict[str, Any]) -> str:
    return scores_text(row["metrics"]) or "no labels to score by"


def _per_label(scores: list[dict[str, Any]]) -> str:
    header = ["label", "precision", "recall", "f1", "rows"]
    body = [[one["label"], *(f"{one[name]:.4f}" for name in header[1:4]), f"{one['rows']:,}"] for one in scores]
    return text_table(header, body)


def _speed(speed: dict[str, Any]) -> str:
    """Return the measurements as text; not every machine counts joules, and a packed file alone has no FLOPs."""
    memory, flops, joules = (speed.get(name) for name in ("peak_memory", "flops", "joules_for_one"))
    text = "{runtime}: {sentences_per_second:,} sentences/s, {milliseconds_for_one} ms for one".format(**speed)
    text += "" if joules is None else f", {1000 * joules:.3g} mJ for one"
    text += "" if memory is None else f", {human_bytes(memory)} of memory"
    return text + ("" if flops is None else f", {flops:,} FLOPs")


def _sizes(row: dict[str, Any]) -> str:
    """Return the sizes of a model as text; a packed file alone has one, a teacher imported as logits two or none."""
    if "parameters" not in row:
        return f"{row['bytes_packed']:,} bytes"
    if row["bytes_model"] is None:
        return "imported as logits"
    sizes = f"{row['parameters']:,} parameters, {row['bytes_model']:,} bytes"
    if row["bytes_gzip"] is None:
        return f"imported as logits, of {sizes}"
    packed = f", {row['bytes_packed']:,} packed" if row["bytes_packed"] else ""
    return f"{sizes} ({row['bytes_gzip']:,} gzipped{packed})"


if __name__ == "__main__":
    run_script(main)
