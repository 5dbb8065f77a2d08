"""Count which lines and branches of runtimes/c/featherweight.h the tests of the C runtime run, and list the others.

    python benchmarks/c_coverage.py [TEST...]

The tests build the runtime by `cc --coverage -O0` for this processor, once for each of its settings that they try.
Without tests, all that use it run.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
HEADER = ROOT / "runtimes" / "c" / "featherweight.h"
TESTS = (
    "runtime/test_attacks.py",
    "runtime/test_fuzz_inputs.py",
    "runtime/test_c_command.py",
    "runtime/test_c_edges.py",
    "runtime/test_c_fuzz.py",
    "runtime/test_c_library.py",
    "runtime/test_c_runtime.py",
    "runtime/test_c_transformers.py",
    "runtime/test_threads.py",
    "runtime/test_rejecting_readers.py",
    "runtime/test_what_is_a_text.py",
    "tokenizers/test_merge_order.py",
    "tokenizers/test_ngrams.py",
)
USUAL = "usual"
"""The build without settings: what it does not run is listed."""


def counts(build: Path) -> tuple[dict[int, int], dict[tuple[int, int], int]]:
    """Return how often each line of the header ran in a build's programs, and each branch of a line."""
    lines: collections.Counter[int] = collections.Counter()
    branches: collections.Counter[tuple[int, int]] = collections.Counter()
    command = ["gcov", "--json-format", "--stdout", "--branch-probabilities", *map(str, build.glob("*.gcda"))]
    for program in subprocess.run(command, check=True, capture_output=True, cwd=build).stdout.splitlines():
        for file in json.loads(program)["files"]:
            if Path(file["file"]).name != HEADER.name:
                continue
            for line in file["lines"]:
                lines[line["line_number"]] += line["count"]
                for place, branch in enumerate(line["branches"]):
                    branches[line["line_number"], place] += branch["count"]
    return lines, branches


def by_line(branches: dict[tuple[int, int], int]) -> dict[int, list[int]]:
    """Return how often each branch of each line ran."""
    lines = collections.defaultdict(list)
    for (line, _), count in sorted(branches.items()):
        lines[line].append(count)
    return lines


def missing(builds: dict[str, tuple[dict, dict]]) -> Iterator[str]:
    """Yield each line that the usual build did not run, or not with each of its branches, and the builds that did."""
    source = HEADER.read_text(encoding="utf-8").splitlines()
    ran = {name: by_line(branches) for name, (_, branches) in builds.items()}
    for line, count in sorted(builds[USUAL][0].items()):
        counted = ran[USUAL][line]
        never = [place for place, times in enumerate(counted) if not times]
        if count and not never:
            continue
        others = []
        for name, (lines, _) in builds.items():
            of_build = ran[name][line]
            if lines.get(line) and len(of_build) == len(counted) and all(of_build[place] for place in never):
                others.append(name)
        what = f"branches {', '.join(map(str, never))} of {len(counted)}" if count else "the line"
        yield f"{line}: {what}: {source[line - 1].strip()} [{'; '.join(others) or 'no build'}]"


def share(counted: dict) -> str:
    """Return how many of some lines or branches ran."""
    ran = sum(count > 0 for count in counted.values())
    return f"{ran:,} of {len(counted):,} ({100 * ran / len(counted):.2f} %)"


def main() -> None:
    """Run the tests, and print a table of builds and what each did not run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    usual = [f"tests/{name}" for name in TESTS]
    parser.add_argument("tests", nargs="*", default=usual, help="pytest's names of tests, by default all of them")
    tests = parser.parse_args().tests
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *tests], cwd=ROOT, env={**os.environ, "C_COVERAGE": folder}
        )
        builds = {build.name: counts(build) for build in sorted(Path(folder).iterdir()) if list(build.glob("*.gcda"))}
    print(*missing(builds), sep="\n")
    print("\n| build | lines | branches |\n|---|---:|---:|")
    for name, counted in builds.items():
        print(f"| {name} | {' | '.join(map(share, counted))} |")
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
