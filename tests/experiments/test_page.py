"""Contents of the report's page, and that no text becomes markup."""

import re
from collections import Counter
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from page_rows import page, row, sweep

from compression.experiments.report.record import ExperimentRecord, RecordedRun
from compression.experiments.report.results import group_rows


class Parsed(HTMLParser):
    """Elements, ids and text of a page, without its styles and script."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.ids: list[str] = []
        self.texts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags[tag] += 1
        assert not [name for name, _ in attrs if name.startswith("on")]
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


@pytest.fixture(scope="module")
def html() -> str:
    return page(*sweep(splits=("test", "validation")))


def test_everything_is_on_the_page(html):
    record, rows = sweep()
    text = Parsed(html).text
    (results,) = group_rows(rows)
    assert all(group.label in text for group in results.groups)
    assert all(run.id in text for run in record.runs if run.id)
    assert "runs without a result 1" in text
    assert "91.50 ± 0.71" not in text  # one of its two seeds is missing
    assert "76.50 ± 0.71" in text
    assert "thesis, SST-2 (quoted)" in text
    assert "other 75.00" in text
    assert "embedding 100,000 (100.0 %)" in text
    assert "preprocess" in text
    assert 'class="n best"' in html


def test_the_page_is_self_contained(html):
    # Names of SVG's and XML's vocabularies look like addresses; nothing is read from them.
    assert set(re.findall(r"https?://([^/\"]+)", html)) <= {"www.w3.org", "purl.org", "creativecommons.org"}
    assert not re.search(r"(src|href)=[\"']?(https?:|//)|url\((?!#)|@import", html)


def test_a_chain_has_no_runs_but_its_models():
    _, rows = sweep()
    rows = [{key: value for key, value in row.items() if key not in ("cell", "run_id")} for row in rows]
    record = ExperimentRecord(name="c", title="A chain", kind="chain", definition="c.yaml", jobs=({"job": "evaluate"},))
    text = Parsed(page(record, rows)).text
    assert "ffn-teacher-s2" in text
    assert "lr: 0.1" in text
    assert "Means and deviations" not in text
    assert "thesis" not in text.partition("How to read this")[0]


def test_ids_are_unique_across_figures_and_references_lead_to_them(html):
    ids = Counter(Parsed(html).ids)
    assert [name for name, count in ids.items() if count > 1] == []
    assert {"s0-point-0-0", "s1-point-0-0"} <= set(ids)
    found = set(re.findall(r'href="#([^"]+)"', html)) | set(re.findall(r"url\(#([^)]+)\)", html))
    assert found
    assert found <= set(ids)


NASTY = st.text(alphabet="ab $\\_^{}<>&\"'`-!/=;\n", min_size=1, max_size=12).filter(str.strip)


@pytest.mark.slow
@settings(max_examples=3)
@given(NASTY)
def test_no_text_becomes_markup(word: str):
    evil = f"</script></title><img onerror='x()'>{word}--><x-evil"
    parsed = Parsed(page(*sweep(evil, evil)))
    assert not set(parsed.tags) & {"x-evil", "img", "iframe", "object", "a", "form"}
    assert (parsed.tags["script"], parsed.tags["style"], parsed.tags["h1"]) == (1, 1, 1)
    assert " ".join(evil.split()) in parsed.text


@pytest.mark.slow
def test_a_page_of_many_runs_stays_small():
    """88 cells of 4 seeds at 3 stages, with 40 settings each."""
    given = {f"setting_{i}": "value" for i in range(40)}
    rows, runs = [], []
    for number in range(352):
        cell = {"student_arch": f"arch {number // 4}"}
        runs.append(RecordedRun(id=f"{number:08x}" * 8, cell=cell, seed=number % 4, settings={"task": "sst-2"}))
        for stage, suffix in (("distilled", ""), ("pruned", "+p"), ("quantized", "+p+q")):
            own = {"model": f"m{number // 4}-s{number % 4}{suffix}", "stage": stage, "cell": cell, "settings": given}
            own |= {"run_id": runs[-1].id, "bytes_model": 1000 + number, "bytes_gzip": 1000 + number}
            rows.append(row(own, number % 4, "test", 0.5 + number % 7 / 20))
    record = ExperimentRecord(name="b", title="Big", kind="sweep", definition="b", runs=tuple(runs))
    assert len(page(record, rows).encode()) < 3e6


def test_a_page_without_models_shows_planned_runs():
    record, _ = sweep()
    text = Parsed(page(record, [])).text
    assert "runs without a result 8" in text
    assert "Labels of the data" in text
