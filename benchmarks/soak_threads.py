"""Memory of a service: eight threads classify texts of all scripts with one model, in NumPy and in C.

    make -C runtimes/c
    python benchmarks/soak_threads.py
    python benchmarks/soak_threads.py --texts 1000000 --models sst-2-12k

One text in ten thousand has 100,000 characters. Caches of words fill up and are emptied, so what counts is the memory
that is held most of the time: the median over each quarter of the texts. The first quarter fills the caches. More than
5 % of growth from the second quarter to the last one, or answers that a new model does not give, are findings (exit
code 1).
"""

import argparse
import os
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy loads: the threads below share the processor

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from random_texts import random_text
from shared import memory_now

from compression.runtime import Model, load
from compression.runtime.native import load_native

THREADS, BATCH, GROWTH = 8, 20, 0.05


def soak(model: Model, numbers: range) -> list[int]:
    """Classify the texts with these numbers in threads. Returns the memory that is held after each batch."""

    def classify(batch: range) -> int:
        model.predict(list(map(random_text, batch)))
        return memory_now()

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(classify, (numbers[start : start + BATCH] for start in range(0, len(numbers), BATCH))))


def main() -> None:
    """Run each model in each runtime, and print a table. Exits with code 1 if there are findings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["sst-2-12k", "sst-2-400k"], help="packed files, or zoo names")
    parser.add_argument("--texts", type=int, default=400_000, help="texts for each (default: %(default)s)")
    args = parser.parse_args()
    print("| model | runtime | texts | seconds | MB, first quarter | second | third | last | most |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    findings = []
    for name in args.models:
        for runtime, reader in {"NumPy": load, "C": load_native}.items():
            model, started = reader(name), time.monotonic()
            held = [soak(model, range(args.texts * n // 4, args.texts * (n + 1) // 4)) for n in range(4)]
            medians = [statistics.median(quarter) for quarter in held]
            columns = [name, runtime, f"{args.texts:,}", f"{time.monotonic() - started:,.0f}"]
            columns += [f"{bytes_held / 1e6:.1f}" for bytes_held in (*medians, max(map(max, held)))]
            print("|", " | ".join(columns), "|", flush=True)
            findings += [f"{name} in {runtime}: memory grows"] if medians[3] > (1 + GROWTH) * medians[1] else []
            texts = list(map(random_text, range(100)))
            if model.predict(texts) != reader(name).predict(texts):
                findings.append(f"{name} in {runtime}: other answers than those of a new model")
    print("\n".join(findings or ["no findings"]))
    raise SystemExit(bool(findings))


if __name__ == "__main__":
    main()
