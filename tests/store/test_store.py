"""The store: an artifact is built once, found by its key, published and replaced atomically, and named by aliases."""

import dataclasses
import shutil
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

import pydantic
import pytest

from common.errors import UserError
from common.store.artifact import Artifact, artifact_at, find, read_manifest
from common.store.files import read_json, write_json
from common.store.locks import waiting
from common.store.step import Context, Inputs, Step
from common.store.store import Store


class Write(Step):
    """Writes its text, and counts how often it runs."""

    text: str
    note: str = pydantic.Field("", exclude=True)
    above: Path | None = pydantic.Field(None, exclude=True)
    trouble: str = pydantic.Field("", exclude=True)
    runs: ClassVar[list[Context]] = []

    def inputs(self, paths: Store) -> dict[str, Artifact]:
        return {"parent": artifact_at(self.above)} if self.above else {}

    def run(self, inputs: Inputs, out: Path, context: Context) -> dict[str, Any]:
        self.runs.append(context)
        (out / "deep").mkdir()
        (out / "deep" / "text.txt").write_text(self.text)
        if self.trouble:
            context.work.mkdir(parents=True, exist_ok=True)
            (context.work / "state").write_text("half way")
            raise RuntimeError(self.trouble)
        return {"length": len(self.text)}


class Later(Write):
    version: ClassVar[int] = 2


@pytest.fixture
def store(tmp_path):
    Write.runs.clear()
    return Store(tmp_path / "workspace")


@pytest.fixture
def context(store):
    return Context()


def text_of(artifact: Artifact) -> str:
    return (artifact.path / "deep" / "text.txt").read_text()


def entries(store: Store) -> set[str]:
    """Names in the store's folder, but for locks."""
    return {path.name for path in (store.root / "store").iterdir() if not path.name.endswith(".lock")}


def test_an_artifact_is_built_once(store, context, capsys):
    first = store.make(Write(text="a", note="one"), dataclasses.replace(context, name="x"))
    again = store.make(Write(text="a", note="another"), dataclasses.replace(context, cpu=True, name="y"))
    assert again == first == store.get(first.key)
    assert text_of(first) == "a"
    assert len(Write.runs) == 1
    assert capsys.readouterr().err == "y: up to date\n"


def test_the_key_is_of_kind_version_settings_and_inputs(store, context, tmp_path):
    (tmp_path / "file").write_text("1")
    artifact = store.make(Write(text="a"), context)
    of_file = Artifact.of_file(tmp_path / "file")
    keys = [Write(text="a").key({}), Write(text="b").key({}), Later(text="a").key({})]
    keys += [Write(text="a").key({"x": artifact}), Write(text="a").key({"y": artifact})]
    keys += [Write(text="a").key({"x": of_file})]
    assert len(set(keys)) == len(keys)
    assert Write(text="a", note="no part of it").key({}) == keys[0] == artifact.key
    (tmp_path / "other").write_text("1")
    assert Artifact.of_file(tmp_path / "other").key == of_file.key
    (tmp_path / "other").write_text("2")
    assert Artifact.of_file(tmp_path / "other").key != of_file.key


def test_a_folder_from_outside_is_known_by_all_of_its_files(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").write_text("1")
    first = Artifact.of_folder(tmp_path / "a").key
    (tmp_path / "a" / "vocab.txt").write_text("")
    second = Artifact.of_folder(tmp_path / "a").key
    (tmp_path / "a" / "vocab.txt").rename(tmp_path / "a" / "words.txt")
    assert len({first, second, Artifact.of_folder(tmp_path / "a").key}) == 3


def test_a_missing_file_from_outside_is_named(tmp_path):
    with pytest.raises(UserError, match="nothing: no such file"):
        Artifact.of_file(tmp_path / "nothing")


def test_the_manifest_says_what_was_done(store, context):
    models = store.root / "models" / "t"
    parent = store.make(Write(text="a"), context, alias=models / "p")
    child = store.make(Later(text="abc", above=parent.path), context, alias=models / "c")
    manifest = read_manifest(child.path)
    assert (manifest.kind, manifest.version, manifest.key) == ("later", 2, child.key)
    assert manifest.settings == {"text": "abc"}
    assert manifest.inputs == {"parent": parent.key}
    assert manifest.parent == "p"
    assert [(action.kind, action.settings["text"]) for action in manifest.actions] == [("write", "a"), ("later", "abc")]
    assert manifest.facts == {"length": 3}
    assert manifest.files == {"deep/text.txt": 3}
    assert manifest.libraries["torch"]


def test_a_name_points_to_one_artifact(store, context):
    alias = store.root / "models" / "t" / "m"
    store.make(Write(text="a"), context, alias=alias)
    with pytest.raises(UserError, match=r"'m' in .*models/t was built with other settings or inputs; choose another"):
        store.make(Write(text="b"), context, alias=alias)
    assert text_of(find(alias, "")) == "a"
    assert len(Write.runs) == 1
    store.make(Write(text="b"), dataclasses.replace(context, force=True), alias=alias)
    assert text_of(find(alias, "")) == "b"
    store.make(Write(text="a"), context, alias=alias, replace=True)
    assert text_of(find(alias, "")) == "a"
    assert len(Write.runs) == 2  # the first one was still in the store


def test_a_name_may_be_that_of_a_file(store, context):
    alias = store.root / "packed" / "t" / "m.fwt"
    artifact = store.make(Write(text="a"), context, alias=alias, file="deep/text.txt")
    assert artifact.path == alias
    assert alias.read_text() == "a"


def test_files_built_from_a_model_go_when_its_name_points_elsewhere(store, context):
    model, packed = store.model("t", "m"), store.packed("t", "m")
    store.make(Write(text="a"), context, alias=model)
    store.make(Write(text="packed"), context, alias=packed, file="deep/text.txt")
    store.make(Write(text="a"), context, alias=model)
    assert packed.exists()
    store.make(Write(text="b"), dataclasses.replace(context, force=True), alias=model)
    assert not packed.is_symlink()


def test_what_is_missing_is_named_with_the_command(store):
    with pytest.raises(UserError, match="models/t/m: no such file; run: train it"):
        find(store.model("t", "m"), "run: train it")
    assert store.get("0" * 16) is None


@pytest.mark.parametrize("damage", ["shorten", "remove", "manifest"])
def test_a_damaged_artifact_is_built_again(store, context, damage):
    artifact = store.make(Write(text="abc"), context)
    file = artifact.path / ("manifest.json" if damage == "manifest" else "deep/text.txt")
    file.unlink() if damage == "remove" else file.write_text("x")
    assert store.get(artifact.key) is None
    assert text_of(store.make(Write(text="abc"), context)) == "abc"
    assert len(Write.runs) == 2


def test_a_failed_build_leaves_nothing_but_its_state(store, context):
    with pytest.raises(RuntimeError, match="oh"):
        store.make(Write(text="a", trouble="oh"), context, alias=store.model("t", "m"))
    key = Write(text="a").key({})
    assert entries(store) == {f"{key}.work"}
    assert not store.model("t", "m").is_symlink()
    assert (Write.runs[0].work / "state").read_text() == "half way"
    store.make(Write(text="a"), context, alias=store.model("t", "m"))
    assert Write.runs[1].work == Write.runs[0].work
    assert len(entries(store)) == 2  # the link and the folder
    assert not Write.runs[1].work.exists()


def test_leftovers_of_a_killed_build_go(store, context):
    key = Write(text="a").key({})
    left = store.root / "store" / f"{key}.0badcafe"
    left.mkdir(parents=True)
    store.make(Write(text="a"), context)
    assert not left.exists()


@pytest.mark.slow
def test_replacing_is_atomic(store, context):
    """At every moment the name leads to a whole artifact, old or new."""
    alias, force = store.model("t", "m"), dataclasses.replace(context, force=True)
    store.make(Write(text="abc"), context, alias=alias)
    over, seen = threading.Event(), []

    def look():
        while not over.is_set():
            seen.append((alias / "deep" / "text.txt").exists())

    thread = threading.Thread(target=look)
    thread.start()
    for _ in range(20):
        store.make(Write(text="abc"), force, alias=alias)
    over.set()
    thread.join()
    assert len(Write.runs) == 21
    assert seen
    assert all(seen)
    assert len(entries(store)) == 2


def test_a_moved_workspace_keeps_its_names(store, context, tmp_path):
    store.make(Write(text="a"), context, alias=store.model("t", "m"))
    moved = Store(store.root.rename(tmp_path / "moved"))
    assert text_of(find(moved.model("t", "m"), "")) == "a"
    moved.make(Write(text="a"), Context(), alias=moved.model("t", "m"))
    assert len(Write.runs) == 1


def test_a_copied_artifact_keeps_its_key(store, context, tmp_path):
    artifact = store.make(Write(text="a"), context, alias=store.model("t", "m"))
    copy = shutil.copytree(artifact.path, tmp_path / "elsewhere")
    shutil.rmtree(store.root)
    assert artifact_at(copy).key == artifact.key


def test_who_waits_for_another_finds_its_artifact(store, context):
    class Slow(Write):
        def run(self, inputs, out, context):
            time.sleep(0.5)
            return super().run(inputs, out, context)

    results, alias = [], store.model("t", "m")

    def make():
        with waiting():
            results.append(store.make(Slow(text="a"), context, alias=alias))

    threads = [threading.Thread(target=make) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results[0] == results[1]
    assert len(Write.runs) == 1


def test_a_folder_in_the_way_is_named(store, context):
    alias = store.model("t", "m")
    alias.mkdir(parents=True)
    (alias / "mine").write_text("precious")
    with pytest.raises(UserError, match="models/t/m: a folder of that name exists that this program did not create"):
        store.make(Write(text="a"), context, alias=alias)
    assert (alias / "mine").exists()


def test_a_manifest_that_is_none_is_refused(store, context):
    artifact = store.make(Write(text="a"), context)
    write_json(artifact.path / "manifest.json", {**read_json(artifact.path / "manifest.json"), "more": 1})
    with pytest.raises(UserError, match="unknown setting 'more'"):
        read_manifest(artifact.path)
