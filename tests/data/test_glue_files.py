"""GLUE's files: every official layout is read whole."""

import numpy as np
import pytest
import tiny
import tiny_glue

from common.data.readers.tables import read_source
from common.data.tasks import known_tasks, load_task


@pytest.mark.parametrize("name", ["cola", "mrpc", "sts-b", "qnli", "rte", "wnli"])
def test_every_row_of_the_official_layout_is_kept_in_place(glue, name):
    task = load_task(name)
    texts = [text for text, *_ in (tiny_glue.SINGLES if name == "cola" else tiny_glue.PAIRS)]
    for file, first, count in (("train.tsv", 0, 120), ("dev.tsv", 120, 40)):
        split = read_source(glue / task.source.folder / file, task)
        assert split.source_rows.tolist() == list(range(count))
        assert split.sentence1 == texts[first : first + count]
        assert split.labels.dtype == (np.float32 if name == "sts-b" else np.int64)


@pytest.mark.parametrize("name", ["qnli", "rte"])
def test_entailment_is_class_0_where_its_name_comes_first(glue, name):
    task = load_task(name)
    split = read_source(glue / task.source.folder / "train.tsv", task)
    assert split.labels.tolist() == [1 - y for *_, y in tiny_glue.PAIRS[:120]]


OFFICIAL_ROWS = {
    "sst-2": (67349, 872),
    "cola": (8551, 1043),
    "rte": (2490, 277),
    "wnli": (635, 71),
    "sts-b": (5749, 1500),
    "mrpc": (None, 408),
    "qnli": (None, 5463),
}
"""Rows of the files of train and dev; None where the file at hand is not the official one."""


@pytest.mark.slow
@pytest.mark.skipif(not tiny.GLUE.exists(), reason="GLUE is not here")
@pytest.mark.parametrize("name", [name for name in known_tasks() if load_task(name).source.kind == "glue"])
def test_real_files_are_read_whole(name):
    task = load_task(name)
    for number, file in enumerate(task.source.files.values()):
        path = tiny.GLUE / task.source.folder / file
        if not path.exists() or path.stat().st_size > 50e6:
            continue
        split = read_source(path, task)
        assert len(split) == path.read_bytes().count(b"\n") - (not task.source.header)
        assert split.source_rows.tolist() == list(range(len(split)))
        assert split.labelled.all()
        expected = OFFICIAL_ROWS.get(name, (None, None))[min(number, 1)]
        assert expected in (None, len(split)), file
