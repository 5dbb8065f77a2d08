"""The npm package: it is installed from its file into a fresh folder, and answers in Node.js and in a browser."""

import functools
import http.server
import json
import queue
import re
import shutil
import subprocess
import tarfile
import threading

import pytest
import tiny
import web_module

from compression.runtime import load, zoo_file

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("npm"), reason="no Node.js with npm here"),
]
NAME = "featherweight-text"
TEXT = "a gorgeous , witty film"
IN_NODE = """
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import * as imported from "NAME";
const required = createRequire(import.meta.url)("NAME");
const file = readFileSync("sst-2-12k.fwt");
const refusal = async ask => { try { await ask(); } catch (error) { return `${error.name}: ${error.message}`; } };
const answers = [];
for (const { load } of [imported, required]) {
  const model = await load(file);
  answers.push([model.predict("TEXT"), await refusal(() => model.predict(null)), await refusal(() => model.predict(5)),
    await refusal(() => load("sst-2-12k.fwt")), await refusal(() => load(file.subarray(0, 5000)))]);
}
console.log(JSON.stringify(answers));
"""
IN_BROWSER = """<!doctype html>
<script type="importmap">{ "imports": { "NAME": "./node_modules/NAME/featherweight.js" } }</script>
<script type="module">
  import { load } from "NAME";
  const model = await load(await (await fetch("sst-2-12k.fwt")).arrayBuffer());
  await fetch("answer", { method: "POST", body: JSON.stringify(model.predict("TEXT")) });
</script>
"""


@pytest.fixture
def installed(tmp_path):
    """A folder in which the package has been installed from its file, without a network."""

    def npm(folder, *words):
        command = ["npm", *words, "--offline", "--no-audit", "--no-fund", "--cache", str(tmp_path / "cache")]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr

    npm(web_module.FOLDER, "pack", "--pack-destination", str(tmp_path))
    (package,) = tmp_path.glob("*.tgz")
    folder = tmp_path / "fresh"
    folder.mkdir()
    npm(folder, "install", str(package))
    shutil.copy(zoo_file("sst-2-12k"), folder)
    return folder


def check_answer(answer):
    model = load("sst-2-12k")
    assert answer["label"] == model.predict([TEXT])[0]
    assert answer["probabilities"] == pytest.approx(model.probabilities([TEXT])[0].tolist(), abs=1e-3)


def written(source):
    return source.replace("NAME", NAME).replace("TEXT", TEXT)


def test_it_has_the_version_of_the_wheel_the_licence_and_what_readers_need(installed):
    about = json.loads((web_module.FOLDER / "package.json").read_text())
    init = (tiny.ROOT / "runtimes" / "python" / "package" / "__init__.py").read_text()
    assert about["version"] == re.search(r'^__version__ = "(.+)"$', init, re.MULTILINE)[1]
    (package,) = installed.parent.glob("*.tgz")
    with tarfile.open(package) as archive:
        sizes = {member.name: member.size for member in archive}
        assert archive.extractfile("package/LICENSE").read() == (tiny.ROOT / "LICENSE").read_bytes()
    code = {"js", "cjs", "d.ts", "d.cts", "wasm"}
    others = {"LICENSE", "README.md", "package.json"}
    assert sizes.keys() == {f"package/{name}" for name in others | {f"featherweight.{suffix}" for suffix in code}}
    assert package.stat().st_size < 50_000


def test_import_and_require_answer_in_node(installed):
    (installed / "answers.mjs").write_text(written(IN_NODE))
    done = subprocess.run(["node", "answers.mjs"], cwd=installed, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    for answer, *refusals in json.loads(done.stdout):
        check_answer(answer)
        assert refusals == [
            "TypeError: text 1 is of type null, not a string",
            "TypeError: text 1 is of type Number, not a string",
            "TypeError: a model is an ArrayBuffer or a Uint8Array with the bytes of its file",
            "Error: the file's length is not the one it says: truncated, or something was appended",
        ]


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
def test_it_answers_in_a_browser(installed):
    (installed / "page.html").write_text(written(IN_BROWSER))
    answers = queue.Queue()

    class Handler(http.server.SimpleHTTPRequestHandler):
        """Serves the folder, and keeps what the page posts."""

        def do_POST(self):
            answers.put(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

    handler = functools.partial(Handler, directory=str(installed))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-proxy-server", "--remote-debugging-port=0"]
        flags += [f"--user-data-dir={installed / 'profile'}"]
        command = [BROWSER, *flags, f"http://127.0.0.1:{server.server_port}/page.html"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as browser:
            try:
                check_answer(json.loads(answers.get(timeout=100)))
            finally:
                browser.terminate()
        server.shutdown()
