"""The table of records: each claim against the record before it."""

import pytest
from archive_rows import grid

from common.errors import UserError
from merge import merged
from records import Claim, records_table

CLAIMS = [
    ("first", "BiLSTM with labels"),
    ("better", "more text"),
    ("worse", "less text"),
    ("as good in half", "fewer bits"),
    ("too far behind", "even fewer bits"),
]
GRID = grid(
    "s",
    {
        "first": {"score": 0.80, "bytes": 30_000},
        "better": {"score": 0.82, "bytes": 31_000},
        "worse": {"score": 0.819, "bytes": 29_000},
        "as good in half": {"score": 0.818, "bytes": 15_000},
        "too far behind": {"score": 0.81, "bytes": 8_000},
    },
)


def table(*claims: tuple[str, str]) -> list[list[str]]:
    """Return the cells of the table's lines below its heading."""
    listed = [Claim(task="sst-2", size="32 KB", experiment="s", model=name, changed=why) for name, why in claims]
    text = records_table(listed, lambda name, task: merged({name: GRID.rows}, task))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[2:]]


def test_a_record_is_better_or_nearly_as_good_in_fewer_bytes():
    lines = table(*CLAIMS)
    assert [line[-1] for line in lines] == ["yes", "yes", "no", "yes", "no"]
    assert [line[0] for line in lines] == ["sst-2, 32 KB, Accuracy, %", "", "", "", ""]
    # Each is compared with the record of its time, seed by seed.
    assert [line[5].split(" ")[0] for line in lines] == ["", "+2.00", "-0.10", "-0.20", "-0.80"]


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(UserError, match="s has no 'second'"):
        table(("second", ""))
