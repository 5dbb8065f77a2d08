"""Write the page featherweight.html: one file with the module, the wrapper and models of the zoo, for any browser.

    python runtimes/web/build.py                       all models of the zoo, without those that answer questions
    python runtimes/web/build.py sst-2-12k my.fwt      the named models
    python runtimes/web/build.py --module              compile featherweight.wasm first (requirements-web.txt)

The page reads nothing else: it works from file://, without a network.
"""

from __future__ import annotations

import argparse
import base64
import json
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path
from typing import NoReturn

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
ZOO = ROOT / "zoo"
MODULE = FOLDER / "featherweight.wasm"
PAGE = FOLDER / "featherweight.html"
GROUPS = {"texts": "One text", "pairs": "Two texts", "words": "Words of a text"}
"""Kind of a model of the zoo -> its heading in the page's list. The module reads no models that answer questions."""
FIRST_TASK = "sst-2"
"""Task of the model that the page opens."""
COMPILE = "-target wasm32-wasi -mcpu=generic+simd128+bulk_memory -std=c99 -Wall -Wextra -Werror -Os -Xclang -Oz -c"
LINK = "--no-entry --stack-first -z stack-size=131072 --gc-sections --strip-all --compress-relocations -O2"


def module() -> bytes:
    """Return the WebAssembly module, compiled by zig's clang (`pip install -r requirements-web.txt`)."""
    sys.path.insert(0, str(ROOT / "runtimes" / "c"))
    import unicode_tables

    try:
        import ziglang  # noqa: F401
        from zopfli.zlib import compress  # a twelfth smaller than zlib's, and the same bytes in every version of Python
    except ImportError as error:
        _stop(f"{error}; run: pip install -r {ROOT / 'requirements-web.txt'}")

    tables = unicode_tables.table_bytes(unicode_tables.HEADER.read_text(encoding="utf-8"))
    packed = compress(tables)[2:-4]  # without zlib's header and checksum
    zig = [sys.executable, "-m", "ziglang"]
    with tempfile.TemporaryDirectory() as scratch:
        header = f"static const uint8_t tables[{len(packed)}] = {{{','.join(map(str, packed))}}};\n"
        Path(scratch, "tables.h").write_text(header, encoding="utf-8")
        compiled, linked = Path(scratch, "module.o"), Path(scratch, "module.wasm")
        # A relative path, because the object may contain the source's path.
        sources = ["-I", scratch, "module.c", "-o", str(compiled)]
        subprocess.run([*zig, "cc", *COMPILE.split(), *sources], check=True, cwd=FOLDER)
        subprocess.run([*zig, "wasm-ld", *LINK.split(), str(compiled), "-o", str(linked)], check=True)
        return linked.read_bytes()


def page(models: list[Path]) -> str:
    """Return the page's HTML with the models of these files."""
    entries = []
    for path in models:
        entry = {"name": path.stem, "file": base64.b64encode(path.read_bytes()).decode()}
        if (path_of_card := path.with_suffix(".json")).exists():
            card = json.loads(path_of_card.read_text(encoding="utf-8"))
            entry |= {name: card["notes"][name] for name in ("title", "question")}
            entry |= {"group": GROUPS[card["kind"]], "range": card["range"]}
        entries.append(entry)
    # A script element ends at the first "</" in its content.
    listed = json.dumps(entries).replace("</", "<\\/")
    html = (FOLDER / "page.html").read_text(encoding="utf-8")
    parts = {
        "/* style */": (FOLDER / "page.css").read_text(encoding="utf-8"),
        "/* module */": f'const MODULE = "{base64.b64encode(MODULE.read_bytes()).decode()}";\nconst MODELS = {listed};',
        "/* wrapper */": (FOLDER / "featherweight.js").read_text(encoding="utf-8"),
        "/* page */": (FOLDER / "page.js").read_text(encoding="utf-8"),
    }
    for mark, part in parts.items():
        assert html.count(mark) == 1
        html = html.replace(mark, part)
    return html


def main() -> None:
    """Parse, build, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="packed files (.fwt), or names of the zoo; without: the whole zoo")
    parser.add_argument("--module", action="store_true", help="compile featherweight.wasm first")
    parser.add_argument("--output", type=Path, default=PAGE, help="the page's file")
    args = parser.parse_args()
    models = [ZOO / f"{name}.fwt" if name == Path(name).stem else Path(name) for name in args.models]
    for path in models:
        if not path.is_file():
            _stop(f"{path}: no such file")
        if not _is_whole(path.read_bytes()):
            _stop(f"{path}: not a packed student, or damaged")
    if args.module:
        MODULE.write_bytes(module())
        print(f"{MODULE}: {MODULE.stat().st_size:,} bytes")
    html = page(models or zoo_models())
    args.output.write_text(html, encoding="utf-8")
    print(f"{args.output}: {args.output.stat().st_size:,} bytes; open it in a browser")


def zoo_models() -> list[Path]:
    """Return the models of the zoo that the module can read, in the order of the page, which opens the first one."""
    cards = [json.loads(path.read_text(encoding="utf-8")) for path in ZOO.glob("*.json")]
    kinds = list(GROUPS)
    read = [
        (kinds.index(card["kind"]), card["task"] != FIRST_TASK, card["task"], card["bytes"], card["name"])
        for card in cards
        if card["kind"] in kinds
    ]
    return [ZOO / f"{name}.fwt" for *_, name in sorted(read)]


def _is_whole(data: bytes) -> bool:
    """Return whether a packed file's length and checksum match its header; the page checks the rest."""
    sizes = len(data), zlib.crc32(data[:-4])
    return data[:3] == b"FWT" and sizes == (int.from_bytes(data[4:8], "little"), int.from_bytes(data[-4:], "little"))


def _stop(message: str) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(2)


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        _stop(f"{error.filename}: {error.strerror}")
