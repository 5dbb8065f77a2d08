"""Malformed data sets and task files, and files as programs write them.

    python benchmarks/malformed.py

For each malformed one, `preprocess.py --task FILE` or `experiment.py fit FILE` must end within 20 seconds with exit
code 2 and one line on stderr that names the problem: no traceback, no hang, nothing left in the workspace. For each of
the others, `preprocess.py` must end with exit code 0. What differs is a finding.
"""

from __future__ import annotations

import codecs
import gzip
import io
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

SECONDS = 20
"""Maximum time for a command to refuse a data set."""
TASK_FILE = "task.yaml"
_ROOT = Path(__file__).parent.parent
Content = str | bytes | Callable[[Path], object]
"""Content of a file, or a function that creates something at its path."""
Case = tuple[str, Callable[[Path], None]]
"""Name of a task, and a function that writes it into a folder."""

_LABELS = ("no", "yes")
_ROWS = [(f"the film number {i} is {('dull', 'fine')[i % 2]}", _LABELS[i % 2]) for i in range(40)]
_GOOD = "".join(f"{text},{label}\n" for text, label in _ROWS)
_CSV = f"text,label\n{_GOOD}"
_TSV = _CSV.replace(",", "\t")
_JSON = "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in _ROWS)
_ARRAY = json.dumps([{"text": text, "label": label} for text, label in _ROWS])
_TAGS = "The\tO\nnew\tO\nYork\tB-X\nTimes\tI-X\n\n" * 20
_SCORES = "text,label\n" + "".join(f"{text},{i % 5}\n" for i, (text, _) in enumerate(_ROWS))


def malformed_tasks(folder: Path) -> Iterator[tuple[str, Path]]:
    """Write malformed tasks, each into a folder with its name in `folder`. Yields (name, YAML file to prepare)."""
    groups = (_csv(), _tsv(), _jsonl(), _parquet(), _pairs(), _scores(), _lists(), _tags(), _no_files(), _task_files())
    return _written(folder, itertools.chain.from_iterable(groups))


def _written(folder: Path, cases: Iterable[Case]) -> Iterator[tuple[str, Path]]:
    for name, write in cases:
        place = folder / name
        place.mkdir(parents=True)
        write(place)
        yield name, place / TASK_FILE


def _case(suffix: str, problem: str, content: Content | None, yaml: str | bytes | None = None, **task: Any) -> Case:
    """Return a name and a function that writes a task with one file.

    suffix: suffix of the file; task: changed settings; yaml: contents of the task file, instead of settings.
    """

    def write(place: Path) -> None:
        values = {"name": "mine", "labels": _LABELS, "source": {"files": {"all": f"rows.{suffix}"}}, **task}
        _write(place / TASK_FILE, json.dumps(values) if yaml is None else yaml)
        if content is not None:
            _write(place / f"rows.{suffix}", content)

    return f"{suffix} {problem}".replace(" ", "-"), write


def _write(path: Path, content: Content) -> None:
    if callable(content):
        content(path)
    else:
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def readable_tasks(folder: Path) -> Iterator[tuple[str, Path]]:
    """Write tasks with files as programs write them, as `malformed_tasks` does."""
    texts, labels = (list(column) for column in zip(*_ROWS, strict=True))
    far = pa.array([2**42] * 40, pa.timestamp("s"))
    contents: Mapping[str, Mapping[str, Content]] = {
        "csv": {
            "Excel's first line": "sep=;\r\n" + _CSV.replace(",", ";").replace("\n", "\r\n"),
            "semicolons": _CSV.replace(",", ";"),
            "bars": _CSV.replace(",", "|"),
            "spaces after commas": _CSV.replace(",", ", "),
            "mark before the first column": codecs.BOM_UTF8 + _CSV.encode(),
            "empty columns": _CSV.replace("\n", ",,,\n"),
            "empty cells": _CSV + "the end,yes,,\n",
            "unused column twice": "id,text,id,label\n" + "".join(f"1,{text},2,{label}\n" for text, label in _ROWS),
            "delimiters in a header": '"text","a, b; c","label"\n' + "".join(f"{t},x,{n}\n" for t, n in _ROWS),
            "newline in a header": '"text","a\nb","label"\n' + "".join(f"{t},x,{n}\n" for t, n in _ROWS),
            "quoted cell of a megabyte": _CSV + '"' + "the end\n" * 2**17 + '",yes\n',
        },
        "tsv": {
            "all quotes": _quoted(_TSV),
            "quoted newline": _TSV + '"the\nend"\tyes\n',
            "row numbers of R": '"text"\t"label"\n'
            + "".join(f'"{i}"\t"{text}"\t"{label}"\n' for i, (text, label) in enumerate(_ROWS, 1)),
            "quotes that are text": _TSV + '"the" end\tyes\n"an open quote\tno\n',
        },
        "jsonl": {
            "array": _ARRAY,
            "indented array with a mark": codecs.BOM_UTF8 + json.dumps(json.loads(_ARRAY), indent=1).encode(),
            "text that is NaN": _JSON + '{"text": NaN, "label": "yes"}\n',
            "unused surrogate": _JSON + '{"text": "the end", "label": "yes", "id": "\\ud83d"}\n',
        },
        "json": {"array": _ARRAY},
        "parquet": {
            "unused times of the year 148000": _as_parquet({"text": texts, "when": far, "label": labels}),
            "unused columns of one name": _as_parquet(
                pa.Table.from_arrays([texts, far, labels, far], ["text", "a", "label", "a"])
            ),
        },
    }
    cases = [_case(suffix, form, content) for suffix, files in contents.items() for form, content in files.items()]
    rare = _case("csv", "label on one row", _CSV.replace("0 is dull,no", "0 is dull,maybe"), labels=[*_LABELS, "maybe"])
    return _written(folder, [*cases, rare])


def malformed_fits(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Write files that fit refuses before it measures anything. Yields (name, arguments of experiment.py)."""
    rows = [(f"{text} indeed", label) for text, label in _ROWS * 2]
    tags = "".join(f'{text},"{("a, b", "b, c", "c")[i % 3]}"\n' for i, (text, _) in enumerate(rows))
    plain = "text,label\n" + "".join(f"{text},{label}\n" for text, label in rows)
    surrogate = '{"text": "the end", "label": "\\udc00"}\n'
    cases: Mapping[str, tuple[str, Content, Sequence[str]]] = {
        "no separator": ("csv", "text,label\n" + tags, ["--kind", "multilabel"]),
        "another separator": ("csv", "text,label\n" + tags, ["--separator", ";"]),
        "separator of single labels": ("csv", plain, ["--kind", "labels", "--separator", ";"]),
        "half a surrogate pair as a label": ("jsonl", surrogate * 60, []),
        "half a surrogate pair as a key": ("jsonl", '{"a\\ud83d": "the end of it", "label": "a"}\n' * 60, []),
        "column twice": ("csv", plain.replace("text,label", "text,text"), ["--text", "text", "--label", "label"]),
        "UTF-16": ("csv", plain.encode("utf-16"), []),
        "Windows-1252": ("csv", plain.encode() + "“the end”,yes\n".encode("cp1252"), []),
        "array cut off": ("json", _ARRAY[:-10], []),
        "delimiter of two letters": ("csv", plain, ["--delimiter", ";;"]),
        "delimiter of JSON": ("jsonl", _JSON, ["--delimiter", ";"]),
        "no header of JSON": ("jsonl", _JSON, ["--no-header"]),
    }
    for problem, (suffix, content, flags) in cases.items():
        path = folder / f"{problem.replace(' ', '-')}.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, content)
        yield f"fit {path.name}", ["fit", str(path), *flags]


def findings() -> Iterator[str]:
    """Run the command on every file. Yields a line for each that does not end as it should."""
    with tempfile.TemporaryDirectory() as name:
        folder, workspace = Path(name) / "files", ["--workspace", str(Path(name) / "workspace")]
        commands = [
            *((name, 2, ["preprocess.py", "--task", str(path)]) for name, path in malformed_tasks(folder / "bad")),
            *((name, 0, ["preprocess.py", "--task", str(path)]) for name, path in readable_tasks(folder / "good")),
            *((name, 2, ["experiment.py", *words]) for name, words in malformed_fits(folder / "fit")),
        ]
        for name, expected, words in commands:
            force = ["--force"] if expected == 0 else []
            command = [sys.executable, *words, *workspace, *force]
            try:
                done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=SECONDS)
            except subprocess.TimeoutExpired:
                yield f"{name}: it does not end"
                continue
            errors = done.stderr.splitlines()
            if done.returncode != expected or (expected and not is_one_line(errors)):
                yield f"{name}: exit code {done.returncode}, {(errors or [''])[-1]}"
        print(f"{len(commands)} files")


def is_one_line(lines: Sequence[str]) -> bool:
    """Return whether what a command wrote to stderr is one line with an error."""
    return len(lines) == 1 and lines[0].startswith("error: ") and len(lines[0]) < 1500


def _quoted(table: str) -> str:
    return "".join("\t".join(f'"{cell}"' for cell in line.split("\t")) + "\n" for line in table.splitlines())


def _csv() -> list[Case]:
    joined = codecs.BOM_UTF8 + _CSV.encode()
    cases: Mapping[str, Content] = {
        "quote that is never closed": _CSV + '"the end,yes\n',
        "text after a quote": _CSV + '"the" end,yes\n',
        "line of twenty megabytes": _CSV + "the end " * 2_500_000 + ",yes\n",
        "NUL byte": _CSV + "the\0end,yes\n",
        "Latin-1": _CSV.encode() + "café,yes\n".encode("latin-1"),
        "Windows-1252": _CSV.encode() + "“the end”,yes\n".encode("cp1252"),
        "UTF-16": _CSV.encode("utf-16"),
        "UTF-16 without a mark": _CSV.encode("utf-16-be"),
        "UTF-32 without a mark": _CSV.encode("utf-32-le"),
        "overlong UTF-8": _CSV.encode() + b"the\xc0\xafend,yes\n",
        "surrogate in UTF-8": _CSV.encode() + b"the\xed\xa0\x80end,yes\n",
        "two files with marks joined": joined + joined,
        "row of one column": _CSV + "the end\n",
        "comma without quotes": _CSV + "well, the end,yes\n",
        "empty file": "",
        "header alone": "text,label\n",
        "no column of texts": _CSV.replace("text,", "txt,"),
        "no column of labels": _CSV.replace(",label", ",class"),
        "column twice": "text,label,text\n" + "".join(f"{text},{label},x\n" for text, label in _ROWS),
        "unknown label": _CSV + "the end,maybe\n",
        "label in capitals": _CSV + "the end,YES\n",
        "delimiter that is not there": "sep=#\n" + _CSV,
        "label with a NUL byte": _CSV + "the end,y\0es\n",
        "compressed": gzip.compress(_CSV.encode()),
        "random bytes": bytes(i * i * 7 % 251 for i in range(10_000)),
        "class without a row": _CSV.replace(",no", ",yes"),
        "one row": "text,label\nthe end,yes\n",
        "one text in all rows": "text,label\n" + "the very same text,no\nthe very same text,yes\n" * 20,
    }
    return [_case("csv", problem, content) for problem, content in cases.items()]


def _tsv() -> list[Case]:
    cases = {
        "tab in a text": _TSV + "the\tend\tyes\n",
        "spaces for tabs": _TSV + "the end    yes\n",
        "quote that is never closed": _quoted(_TSV) + '"the end\t"yes"\n',
        "cell without quotes": _quoted(_TSV) + '"the" end\t"yes"\n',
    }
    return [_case("tsv", problem, content) for problem, content in cases.items()]


def _jsonl() -> list[Case]:
    cases = {
        "array cut off": _ARRAY[:-10],
        "text after an array": _ARRAY + _ARRAY,
        "array of lists": json.dumps(_ROWS),
        "array without commas": _ARRAY.replace("}, {", "} {"),
        "label with half a surrogate pair": _JSON + '{"text": "the end", "label": "yes\\ud83d"}\n',
        "label with a NUL byte": _JSON + '{"text": "the end", "label": "yes\\u0000"}\n',
        "cut off": _JSON[:-10],
        "nested 100000 deep": _JSON + '{"label": "yes", "text": ' + "[" * 100_000 + "]" * 100_000 + "}\n",
        "list in place of an object": _JSON + '["the end", "yes"]\n',
        "no text": _JSON + '{"label": "yes"}\n',
        "text that is an object": _JSON + '{"text": {"a": "the end"}, "label": "yes"}\n',
        "label that is a list": _JSON + '{"text": "the end", "label": ["yes"]}\n',
        "half a surrogate pair": _JSON + '{"text": "the end \\ud83d", "label": "yes"}\n',
        "label of 5000 digits": _JSON + f'{{"text": "the end", "label": {"9" * 5000}}}\n',
        "single quotes": _JSON + "{'text': 'the end', 'label': 'yes'}\n",
    }
    return [_case("jsonl", problem, content) for problem, content in cases.items()]


def _parquet() -> list[Case]:
    texts, labels = (list(column) for column in zip(*_ROWS, strict=True))
    whole = _as_parquet({"text": texts, "label": labels})
    damaged = whole[:40] + bytes(byte ^ 255 for byte in whole[40:400]) + whole[400:]
    cases = {
        "cut off": whole[: len(whole) // 2],
        "damaged pages": damaged,
        "text in place of Parquet": _CSV,
        "no rows": _as_parquet({"text": pa.array([], pa.string()), "label": pa.array([], pa.string())}),
        "labels of the year 148000": _as_parquet({"text": texts, "label": pa.array([2**42] * 40, pa.timestamp("s"))}),
        "column twice": _as_parquet(pa.Table.from_arrays([texts, texts, labels], ["text", "text", "label"])),
        "texts that are numbers": _as_parquet({"text": list(range(40)), "label": labels}),
    }
    return [_case("parquet", problem, content) for problem, content in cases.items()]


def _as_parquet(columns: dict[str, Any] | pa.Table) -> bytes:
    with io.BytesIO() as stream:
        pq.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), stream)
        return stream.getvalue()


def _pairs() -> list[Case]:
    columns = {"sentence1": "a", "sentence2": "b", "label": "label"}
    cases = [("csv", "pairs without a second sentence", _CSV.replace("text,", "a,")), ("txt", "pairs", "a\nb\n")]
    return [_case(kind, problem, content, columns=columns) for kind, problem, content in cases]


def _scores() -> list[Case]:
    cases = {
        "score that is a word": "good",
        "score that is NaN": "nan",
        "score out of range": "5.5",
        "infinite score": "inf",
    }
    return [
        _case("csv", problem, f"{_SCORES}the end,{score}\n", labels=[], range=[0, 5])
        for problem, score in cases.items()
    ]


def _lists() -> list[Case]:
    lists = _JSON.replace('"no"', '["no"]').replace('"yes"', '["no", "yes"]')
    cases = {
        "unknown label in a list": '["yes", "maybe"]',
        "label twice in a list": '["yes", "no", "yes"]',
        "text in place of a list": '"yes"',
        "list in a list": '[["yes"]]',
    }
    return [
        _case("jsonl", problem, f'{lists}{{"text": "the end", "label": {labels}}}\n', kind="multilabel")
        for problem, labels in cases.items()
    ]


def _tags() -> list[Case]:
    cases = {
        "unknown tag": _TAGS + "York\tB-Y\n",
        "continuation of nothing": _TAGS + "The\tO\nTimes\tI-X\n",
        "word without a tag": _TAGS + "Times\n",
        "empty file": "",
    }
    return [
        _case("iob", problem, content, kind="tags", labels=["O", "B-X", "I-X"]) for problem, content in cases.items()
    ]


def _no_files() -> list[Case]:
    cases: Mapping[str, Content | None] = {
        "missing file": None,
        "folder": Path.mkdir,
        "device": lambda path: path.symlink_to("/dev/zero"),
        "pipe": os.mkfifo,
        "socket": _bind,
        "link to itself": lambda path: path.symlink_to(path),
    }
    archive = _case("zip", "archive cut off", _zip()[:-30])
    return [*(_case("csv", problem, content) for problem, content in cases.items()), archive]


def _bind(path: Path) -> None:
    """Create a socket. Its address is relative to its folder, because addresses must be short."""
    before = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as here:
            here.bind(path.name)
    finally:
        os.chdir(before)


def _zip() -> bytes:
    with io.BytesIO() as stream:
        with zipfile.ZipFile(stream, "w") as zipped:
            zipped.writestr("rows.csv", _CSV)
        return stream.getvalue()


def _task_files() -> list[Case]:
    bomb = "- &a0 [x, x]\n" + "".join(f"- &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 60))
    cases: Mapping[str, str | bytes] = {
        "Python tag": "name: !!python/object/apply:os.system [exit 0]\n",
        "aliases of many values": f"name: mine\nlabels:\n{bomb}",
        "100000 brackets": "[" * 100_000,
        "no mapping": "- name: mine\n",
    }
    outside = {"kind": "glue", "folder": "../../outside", "files": {"train": "a.tsv"}, "sha256": "0" * 64}
    return [
        *(_case("yaml", problem, None, yaml=text) for problem, text in cases.items()),
        _case("yaml", "name with a path", None, name="../mine"),
        _case("yaml", "archive that leads outside", None, source={**outside, "url": "http://127.0.0.1:9/a.zip"}),
    ]


if __name__ == "__main__":
    lines = list(findings())
    print("\n".join([*lines, f"{len(lines)} findings"]))
    sys.exit(bool(lines))
