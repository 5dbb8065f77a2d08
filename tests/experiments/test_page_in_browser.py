"""The report's page in a real browser: it works, it fits, and it reaches nothing."""

import http.server
import json
import re
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from page_rows import page, row, sweep

from compression.experiments.report.record import ExperimentRecord
from compression.experiments.report.results import group_rows

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def browse(folder: Path, html: str, script: str, width: int | None = None) -> tuple[Any, str]:
    """What a script appended to the page passes to send(), and the browser's log. width: of the window, in pixels.

    Browsers have a least width of window, so a page of a given width is a frame in another.
    """
    relay = (
        "<pre id='result'></pre><script>onmessage = e => document.querySelector('pre').textContent = e.data</script>"
    )
    probe = f"<script>{{const send = value => parent.postMessage(JSON.stringify(value), '*');\n{script}}}</script>"
    (folder / "page.html").write_text(html.replace("</body>", probe + "</body>"), encoding="utf-8")
    frame = f"<iframe src='page.html' style='border:0;width:{width or 1200}px;height:900px'></iframe>"
    (folder / "frame.html").write_text(f"<!doctype html>{relay}{frame}", encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--window-size=1300,1000"]
    flags += [f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=3000", "--dump-dom"]
    url = (folder / "frame.html").as_uri()
    done = subprocess.run([BROWSER, *flags, url], capture_output=True, text=True, timeout=120, check=True)
    result = re.search(r'<pre id="result">(.*?)</pre>', done.stdout, re.DOTALL)
    assert result, done.stderr
    assert result[1], done.stderr
    return json.loads(result[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")), done.stderr


needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium here")

USE = """
const rowsOf = table => [...table.tBodies[table.tBodies.length - 1].rows];
const all = name => [...document.querySelectorAll(name)];
const pivot = document.querySelector(".pivot"), runs = all(".sortable").find(t => t.caption.textContent === "Models");
const label = table => rowsOf(table).map(row => row.cells[0].textContent);
const result = { sticky: getComputedStyle(rowsOf(pivot)[0].cells[0]).position };
const ours = all("thead button").find(b => b.textContent === "accuracy" && pivot.contains(b));
const head = ours.closest("th");
result.pivot = [];
for (let i = 0; i < 3; i++) { ours.click(); result.pivot.push([head.ariaSort, ...label(pivot)]); }
const score = all("thead button").find(b => b.textContent.startsWith("Accuracy") && runs.contains(b));
result.scores = [];
for (let i = 0; i < 2; i++) {
  score.click();
  result.scores.push(rowsOf(runs).map(row => row.cells[6].textContent));
}
const plot = document.querySelector(".plot"), tip = document.getElementById("tip");
result.hidden = tip.hidden;
const marker = plot.querySelector("[id$='point-0-0']").getBoundingClientRect();
const at = { clientX: marker.x + marker.width / 2 + 3, clientY: marker.y + marker.height / 2 };
plot.dispatchEvent(new PointerEvent("pointermove", at));
result.hover = tip.hidden ? null : tip.textContent;
plot.dispatchEvent(new PointerEvent("pointerleave"));
result.left = tip.hidden;
result.walk = [];
for (const key of ["ArrowRight", "ArrowRight", "ArrowLeft", "Escape"]) {
  plot.dispatchEvent(new KeyboardEvent("keydown", { key, cancelable: true }));
  result.walk.push(tip.hidden ? null : tip.textContent.split("\\n")[0]);
}
result.titles = plot.querySelectorAll("title").length;
send(result);
"""


@needs_browser
def test_sorting_and_hints_in_a_browser(tmp_path: Path):
    record, rows = sweep()
    result, log = browse(tmp_path, page(ExperimentRecord(**{**record.model_dump(), "quote": None}), rows), USE)
    assert "CONSOLE" not in log
    assert result["pivot"] == [["ascending", "ffn", "rnn"], ["descending", "rnn", "ffn"], [None, "ffn", "rnn"]]
    rising = ["71.00", "72.00", "76.00", "77.00", "81.00", "82.00", "91.00", "95.00", "–"]
    assert result["scores"] == [rising, [*rising[-2::-1], "–"]]
    assert result["hidden"]
    assert result["hover"].splitlines()[0] == group_rows(rows)[0].groups[1].label
    assert "71.50 ± 0.71, 2 seeds" in result["hover"]
    assert "50 KB gzipped, 1,800 times smaller than minilm" in result["hover"]
    assert result["left"]
    first, second, *rest = result["walk"]
    assert first != second
    assert rest == [first, None]
    assert result["titles"] == 0
    assert result["sticky"] == "sticky"


FILTER = """
const line = document.querySelector(".filter"), input = line.querySelector("input");
input.value = "PEAR  red"; input.oninput();
const body = line.nextElementSibling.querySelector("tbody");
send([line.hidden, [...body.rows].filter(row => !row.hidden).map(row => row.cells[0].textContent),
      line.querySelector("output").textContent]);
"""


@needs_browser
def test_filtering_in_a_browser(tmp_path: Path):
    names = [
        f"{colour} {fruit}" for colour in ("red", "green", "blue") for fruit in ("apple", "pear", "fig", "plum", "kiwi")
    ]
    rows = [
        row({"model": name, "stage": "distilled", "bytes_model": 9, "bytes_gzip": 9}, 1, "test", 0.5) for name in names
    ]
    html = page(ExperimentRecord(name="f", title="f", kind="chain", definition="f"), rows)
    result, log = browse(tmp_path, html, FILTER)
    assert "CONSOLE" not in log
    assert result == [False, ["red pear"], "1 of 15"]


WIDTHS = """
const wide = [...document.querySelectorAll(".wide")];
send([innerWidth, document.scrollingElement.scrollWidth, wide.some(box => box.scrollWidth > box.clientWidth)]);
"""


@needs_browser
def test_nothing_is_wider_than_a_phone(tmp_path: Path):
    result, _ = browse(tmp_path, page(*sweep("a-very-long-name-" * 6, "AVeryLongTitle" * 8)), WIDTHS, width=390)
    inner, scrolled, boxes = result
    assert inner == 390
    assert scrolled <= 390
    assert boxes  # there is something that would be wider


NETWORK = """
const refused = [];
addEventListener("securitypolicyviolation", event => { refused.push(event.effectiveDirective); send(refused); });
const image = new Image(); image.src = "URL/a.png";
const add = (tag, values) => document.body.append(Object.assign(document.createElement(tag), values));
add("script", { src: "URL/b.js" });
add("link", { rel: "stylesheet", href: "URL/c.css" });
add("iframe", { src: "URL/d.html" });
fetch("URL/e").catch(() => 0);
"""


@needs_browser
def test_the_page_cannot_reach_a_network(tmp_path: Path):
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        html = page(*sweep())
        assert not re.search(r"https?:|src=|@import", html)
        result, _ = browse(tmp_path, html, NETWORK.replace("URL", f"http://127.0.0.1:{server.server_port}"))
        server.shutdown()
    assert {"img-src", "script-src-elem", "style-src-elem", "connect-src"} <= set(result)
    assert asked == []
