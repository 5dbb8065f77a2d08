"""The page's wrapper in Node.js refuses what is not a string, with its position and type."""

import json
import shutil
import subprocess

import packed_students as made
import pytest
import web_module

NODE = shutil.which("node")
SCRIPT = """
import { readFileSync } from "node:fs";
const [wrapper, ...files] = process.argv.slice(1);
const { load } = await import(wrapper);
const [single, pair, tags] = await Promise.all(files.map(file => load(readFileSync(file))));
const tried = ask => {
  try { return ask() && "an answer"; } catch (error) { return `${error.name}: ${error.message}`; }
};
console.log(JSON.stringify([
  ...[undefined, null, NaN, 3, true, ["a"], { text: "a" }].flatMap(value =>
    [tried(() => single.predict(value)), tried(() => single.explain(value)), tried(() => tags.tag(value))]),
  tried(() => pair.predict("a", null)), tried(() => pair.explain(["a", "b"])),
  tried(() => single.predict("a film")), tried(() => single.explain("a film")), tried(() => pair.predict("a", "b")),
  tried(() => tags.tag("a film")), tried(() => single.predict()), tried(() => pair.predict("a")),
]));
"""
TYPES = ("undefined", "null", "Number", "Number", "Boolean", "Array", "Object")
OTHER_KIND = "Error: the model reads another kind of input: one text, two texts, or words to label"


@pytest.mark.slow
@pytest.mark.skipif(NODE is None, reason="no Node.js here")
def test_what_is_not_a_string_is_refused(tmp_path):
    kinds = ({}, {"pair": True}, {"kind": "tags"})
    files = [made.packed(tmp_path / str(i), "conv", "char", **kinds[i]) for i in range(3)]
    command = [NODE, "--input-type=module", "-e", SCRIPT, "--", web_module.WRAPPER, *files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [
        *(f"TypeError: text 1 is of type {name}, not a string" for name in TYPES for _ in range(3)),
        "TypeError: text 2 is of type null, not a string",
        "TypeError: text 1 is of type Array, not a string",
        *["an answer"] * 4,
        *[OTHER_KIND] * 2,
    ]
