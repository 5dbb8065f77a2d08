"""Progress bars: in a log seldom, in a terminal or a notebook often."""

import sys
from types import SimpleNamespace

import pytest

from common import progress


@pytest.fixture
def shown(capsys):
    """A function that returns what bars have written."""
    progress.show_bars(True)
    yield lambda: capsys.readouterr().err
    progress.show_bars(False)


def test_a_log_is_not_filled_with_bars(shown):
    assert list(progress.bar(range(500), "rows")) == list(range(500))
    assert not shown()


def test_a_notebook_without_widgets_has_text_that_stays(shown, monkeypatch):
    monkeypatch.setitem(sys.modules, "ipykernel", SimpleNamespace())
    assert list(progress.bar(range(500), "rows")) == list(range(500))
    assert "500/500" in shown()


def test_a_notebook_with_widgets_uses_them(shown, monkeypatch):
    import tqdm.auto

    class Widget(tqdm.auto.tqdm):
        made = []

        def __init__(self, *args, **kwargs):
            self.made.append(kwargs["desc"])
            super().__init__(*args, **kwargs)

    monkeypatch.setitem(sys.modules, "ipykernel", SimpleNamespace())
    monkeypatch.setattr(tqdm.auto, "tqdm", Widget)
    with progress.counter("bytes", 3) as advance:
        advance(3)
    assert Widget.made == ["bytes"]
