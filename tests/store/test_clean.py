"""`experiment.py clean` removes what nothing leads to, and nothing else, also while other commands run."""

import json
import threading
from pathlib import Path

import pytest
from processes import run_script

from common.store.artifact import Artifact, artifact_at
from common.store.clean import CleanSettings, clean
from common.store.locks import only_one
from common.store.step import Context, Step
from common.store.store import Store


class Text(Step):
    """Writes a text; another artifact may be its input."""

    text: str
    above: Path | None = None
    go_on: threading.Event | None = None
    begun: threading.Event | None = None
    model_config = {"arbitrary_types_allowed": True}

    def inputs(self, paths):
        return {"above": artifact_at(self.above)} if self.above else {}

    def model_dump(self, **given):
        return {"text": self.text}

    def run(self, inputs, out, context):
        (out / "text").write_text(self.text)
        if self.begun:
            self.begun.set()
            assert self.go_on.wait(60)
        if self.text == "stopped":
            context.work.mkdir()
            (context.work / "state").write_text("half")
            raise KeyboardInterrupt
        return {}


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


@pytest.fixture
def make(store):
    def made(text, name="", file="", replace=True, **given) -> Artifact:
        alias = store.root / "models" / "t" / name if name else None
        return store.make(Text(text=text, **given), Context(store), alias=alias, file=file, replace=replace)

    return made


def removed(store, **given):
    return {item.name for item in clean(CleanSettings(workspace=store.root, yes=True, **given)) if item.kind != "lock"}


def test_what_nothing_leads_to_goes(store, make):
    """Every artifact that a name leads to, also through others, is found again."""
    base = make("base", "a")
    named = [make("one", "b", above=base.path), make("two", "c", "text")]
    below = make("three", "d", above=named[0].path)
    make("new base", "a")  # base has no name now, but was built from
    lost = [make("old", "e"), make("nameless")]
    make("new", "e")
    shown = clean(CleanSettings(workspace=store.root))
    assert {item.name for item in shown if item.kind == "artifact"} == {artifact.key for artifact in lost}
    assert all(store.get(artifact.key) for artifact in lost)
    assert removed(store) == {artifact.key for artifact in lost}
    assert [store.get(artifact.key) for artifact in lost] == [None, None]
    assert all(store.get(artifact.key) for artifact in (base, *named, below))
    assert clean(CleanSettings(workspace=store.root)) == []
    assert not [path for path in store.root.rglob("*") if lost[0].key in path.name]


def test_an_unfinished_build_is_kept_unless_asked_for(store, make):
    with pytest.raises(KeyboardInterrupt):
        make("stopped", "a")
    key = Text(text="stopped").key({})
    assert removed(store) == set()
    assert store.is_unfinished(key)
    assert removed(store, unfinished=True) == {key}
    assert not store.is_unfinished(key)


def test_the_inputs_of_a_running_build_are_kept(store, make):
    base = make("base", "a")
    begun, go_on = threading.Event(), threading.Event()
    building = threading.Thread(
        target=make, args=("slow", "b"), kwargs={"above": base.path, "begun": begun, "go_on": go_on}
    )
    building.start()
    assert begun.wait(60)
    make("another", "a")
    assert removed(store) == set()
    go_on.set()
    building.join()
    assert store.get(base.key)
    assert artifact_at(store.root / "models/t/b")


def test_an_artifact_in_use_by_another_command_stays(store, make):
    lost = make("lost")
    with only_one(store.root / "store" / lost.key, "it"):
        assert removed(store) == set()
    assert removed(store) == {lost.key}


def test_damaged_artifacts_and_locks_go(store, make):
    lost = make("lost")
    (lost.path / "manifest.json").write_text("{")
    held, free = store.root / "experiments" / "held", store.root / "experiments" / "free"
    for path in (held, free):
        with only_one(path, "it"):
            pass
    with only_one(held, "it"):
        assert removed(store) == {lost.key}
    assert [path.name for path in (store.root / "experiments").iterdir()] == [".held.lock"]


def test_the_command_says_how_much_room_it_makes(store, make, capsys):
    lost = make("x" * 2000)
    words = ["clean", "--workspace", store.root]
    assert run_script("experiment.py", *words) == 0
    assert f"{lost.key}  text" in (text := capsys.readouterr().out)
    assert "in 1 artifacts and builds" in text
    assert text.endswith("remove them with --yes\n")
    assert run_script("experiment.py", *words, "--yes", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["removed"]
    assert result["bytes"] > 2000
    assert run_script("experiment.py", *words) == 0
    assert capsys.readouterr().out == "0 B in 0 artifacts and builds, 0 locks: nothing to remove\n"


def test_a_workspace_that_is_not_there_has_nothing_to_remove(tmp_path):
    assert clean(CleanSettings(workspace=tmp_path / "none")) == []
