"""Install the wheel with the newest versions that its ranges allow in a fresh environment, and say what breaks there.

    python benchmarks/newest.py runtime                 NumPy alone: answers of the wheel's models
    python benchmarks/newest.py train,quickstart --constraint torch==2.13.0         extras of pyproject.toml: tests

Versions come from the package index that pip uses. A constraint keeps one, such as a build of PyTorch for CPUs. The
exit code is 1 if something breaks.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = ["test_api.py", "teachers", "students", "shrinking", "packing", "inference", "data"]
ANSWERS = """
import featherweight
film, dull = "a gorgeous , witty film", "an hour too long , and not funny once"
for name in ("sst-2-12k", "sst-2-32k", "sst-2-100k"):
    assert featherweight.load(name).predict([film, dull]) == ["positive", "negative"], name
"""


def main() -> None:
    """Parse, install, check, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("extra", help="runtime, or extras of pyproject.toml, such as train,quickstart")
    parser.add_argument("--constraint", action="append", default=[], help="version to keep, such as torch==2.13.0")
    parser.add_argument("--tests", nargs="+", default=[f"tests/{name}" for name in TESTS], help="for extras")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python, constraints = f"{folder}/bin/python", Path(folder, "constraints.txt")
        constraints.write_text("\n".join(args.constraint), encoding="utf-8")
        packages, check = [str(ROOT)], ["-c", ANSWERS]
        if args.extra != "runtime":
            packages = [f"{ROOT}[{args.extra}]", "pytest", "hypothesis"]
            check = ["-m", "pytest", "-m", "not slow", "-k", "not fairseq", "-p", "no:cacheprovider", *args.tests]
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-c", str(constraints), *packages], check=True)
        frozen = subprocess.run([python, "-m", "pip", "freeze"], check=True, capture_output=True, text=True).stdout
        listed = (ROOT / "constraints.txt").read_text(encoding="utf-8")
        pins, versions = (dict(re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE)) for text in (listed, frozen))
        for name, version in versions.items():
            if pins.get(name, version) != version:
                print(f"{name} {version} (pinned: {pins[name]})", flush=True)
        broken = subprocess.run([python, *check], cwd=folder if check[0] == "-c" else ROOT, check=False).returncode
    print("something breaks" if broken else "nothing breaks")
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
