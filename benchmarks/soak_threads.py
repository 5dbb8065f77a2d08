"""Memory of a service: eight threads classify texts of all scripts with one model, in NumPy and in C.

    make -C runtimes/c
    python benchmarks/soak_threads.py
    python benchmarks/soak_threads.py --texts 1000000 --models sst-2-12k

One text in ten thousand has 100,000 characters. Memory is read after half of the texts, when the caches of words are
full, and at the end. More than 2 % of growth, or answers that a new model does not give, are findings (exit code 1).
"""

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from random_texts import random_text
from shared import memory_now

from compression.runtime import Model, load
from compression.runtime.native import load_native

THREADS, BATCH, GROWTH = 8, 20, 0.02


def soak(model: Model, numbers: range) -> int:
    """Classify the texts with these numbers in threads. Returns the memory that is then held."""
    with ThreadPoolExecutor(THREADS) as pool:
        batches = [numbers[start : start + BATCH] for start in range(0, len(numbers), BATCH)]
        list(pool.map(lambda batch: model.predict(list(map(random_text, batch))), batches))
        return memory_now()


def main() -> None:
    """Run each model in each runtime, and print a table. Exits with code 1 if there are findings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["sst-2-12k", "sst-2-400k"], help="packed files, or zoo names")
    parser.add_argument("--texts", type=int, default=40_000, help="texts for each (default: %(default)s)")
    args = parser.parse_args()
    print("| model | runtime | texts | seconds | MB after half | MB at the end |\n|---|---|---:|---:|---:|---:|")
    findings = []
    for name in args.models:
        for runtime, reader in {"NumPy": load, "C": load_native}.items():
            model, started = reader(name), time.monotonic()
            half = args.texts // 2
            before, after = soak(model, range(half)), soak(model, range(half, args.texts))
            columns = [name, runtime, f"{args.texts:,}", f"{time.monotonic() - started:,.0f}"]
            print("|", " | ".join([*columns, f"{before / 1e6:.1f}", f"{after / 1e6:.1f}"]), "|", flush=True)
            findings += [f"{name} in {runtime}: memory grows"] if after > (1 + GROWTH) * before else []
            texts = list(map(random_text, range(100)))
            if model.predict(texts) != reader(name).predict(texts):
                findings.append(f"{name} in {runtime}: other answers than those of a new model")
    print("\n".join(findings or ["no findings"]))
    raise SystemExit(bool(findings))


if __name__ == "__main__":
    main()
