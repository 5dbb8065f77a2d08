"""Every step reads nothing but its inputs: names that mean something else once its key is computed change nothing."""

import hashlib
import importlib
import inspect
import pkgutil
import shutil
import typing

import pytest
import small_roberta
import stages
import tiny

import common
import compression
from common.store.artifact import MANIFEST, read_manifest
from common.store.files import read_json, write_json
from common.store.settings import WorkspaceSettings
from common.store.step import Context, Step
from common.store.store import Store
from common.store.workspace import Workspace
from common.teachers.finetune import finetune
from compression.augmentation.preprocess import preprocess
from compression.shrinking.chain import compress

NAMES = ("data/*/splits", "data/*/augmented/*", "data/*/logits/*/*", "models/*/*", "packed/*/*")
"""Names of all that steps read."""
GUIDED = {"teacher": "tiny-bert", "alpha": 0.5, "epochs": 1}


class World:
    """A workspace with a teacher, an assistant's rows, a student, and files from outside."""

    def __init__(self, folder, glue, encoder, glove, roberta):
        self.workspace, self.glue, self.encoder, self.glove, self.roberta = folder, glue, encoder, glove, roberta

    def preprocess(self, task="sst-2", **given):
        preprocess(tiny.prepare_settings(self.workspace, task, force=True, **given))

    def finetune(self, name="more", encoder=None, **given):
        values = {"max_epochs": 1, "model_name": name, "force": True, **given}
        finetune(tiny.finetune_settings(self.workspace, "sst-2", encoder or self.encoder, **values))

    def compress(self, *actions, **given):
        values = tiny.small(force=True, **GUIDED, **given)
        values |= {} if set(actions) <= {"pack", "export"} else {"model_name": "made"}
        compress(tiny.compress_settings(task="sst-2", workspace=self.workspace, compression_actions=actions, **values))

    def shrink(self, action, **given):
        self.compress(action, load_trained_model="s", tune_epochs=1, **given)


def prepare(world):
    world.preprocess(data_dir=world.glue)


def import_logits(world, name="api"):
    file = world.workspace / "answers.csv"
    rows = [f'"{text}",{number % 2}' for number, text in enumerate(sentences(world))]
    file.write_text("\n".join(["sentence,label", *rows]) + "\n")
    world.preprocess(logits_from=file, generate_loss=("processed",), model_name=name)


def sentences(world):
    from common.data.split import load_split
    from common.data.tasks import load_task

    return load_split(Workspace(world.workspace), load_task("sst-2"), "train").sentence1


def rows_of_file(world):
    file = world.workspace / "more.csv"
    file.write_text("sentence\na truly odd tale of seven lakes\nquite a dull walk home\n")
    world.preprocess(augment="file", augment_file=file)


def pretrain(world):
    corpus, folder = world.workspace / "corpus.txt", world.workspace / "bert"
    teacher = folder if folder.exists() else tiny.write_masked_lm(folder)
    corpus.write_text("\n".join(sentences(world)))
    values = {
        "student_arch": "transformer",
        "embedding_type": "wordpiece",
        "corpus": (str(corpus), "sst-2"),
        "layers": 1,
    }
    values |= {"teacher": str(teacher), "align_hidden": 1.0}
    values = {"task": "general", **tiny.small(**{**values, "epochs": 1}), "force": True, "model_name": "general"}
    compress(tiny.compress_settings(workspace=world.workspace, compression_actions=("pretrain",), **values))


def cross_fit(world):
    world.preprocess(model_name="linear", generate_loss=("processed",), folds=2)


def score(world):
    for name in ("s", "both"):
        stages.score_of(world.workspace, name, force=True)


STEPS = {
    "Prepare": prepare,
    "Augment": lambda world: world.preprocess(augment="tinybert", glove=world.glove, variants=1),
    "NewPairs": lambda world: world.preprocess("qqp", augment="neighbours"),
    "EditedRows": lambda world: world.preprocess(augment="edits", variants=1),
    "RowsOfFile": rows_of_file,
    "TextsOfTasks": lambda world: world.preprocess(augment="tasks", augment_tasks=("qqp",)),
    "Logits": lambda world: world.preprocess(model_name="tiny-bert", generate_loss=("tinybert",), precision="fp32"),
    "MeanLogits": lambda world: world.preprocess(model_name="both", generate_loss=("processed",), precision="fp32"),
    "Imported": import_logits,
    "ImportedLogits": import_logits,
    "Finetune": lambda world: world.finetune(),
    "FairseqFinetune": lambda world: world.finetune(encoder=world.roberta, precision="auto"),
    "Linear": lambda world: world.finetune(encoder="linear"),
    "Frozen": lambda world: world.finetune(frozen=True),
    "CrossFittedLogits": cross_fit,
    "Assist": lambda world: world.finetune(teacher="tiny-bert", augmented="tinybert"),
    "Adopt": lambda world: world.finetune(encoder="sst-2/tiny-bert", as_is=True),
    "Ensemble": lambda world: world.finetune("again", ensemble=("tiny-bert", "other")),
    "Distill": lambda world: world.compress("distill", embedding_init="teacher"),
    "Pretrain": pretrain,
    "Factorize": lambda world: world.shrink("factorize"),
    "Prune": lambda world: world.shrink("prune", prune_units=0.2, prune_vocabulary=2),
    "Quantize": lambda world: world.shrink("quantize", bits=4, ptq_classifier=True),
    "Pack": lambda world: world.compress("pack", load_trained_model="s"),
    "Export": lambda world: world.compress("export", load_trained_model="s"),
    "Evaluate": score,
}
"""Name of a step -> a command that builds it, in the workspace `world`."""
BASES = {"TeacherStep", "LogitsStep", "NewRows", "Shrink", "StudentFile"}
NEEDS = {"FairseqFinetune": "fairseq", "Export": "onnx"}


def step_classes():
    for package in (common, compression):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    classes = [Step]
    for kind in classes:
        classes += [below for below in kind.__subclasses__() if below.__module__.startswith(("common", "compression"))]
    return classes[1:]


def test_every_step_has_a_command_here():
    assert {kind.__name__ for kind in step_classes()} == {*STEPS, *BASES}


def test_no_step_has_the_settings_of_a_command_or_a_workspace():
    for kind in step_classes():
        for name, field in kind.model_fields.items():
            types = {field.annotation, *typing.get_args(field.annotation)}
            refused = [one for one in types if inspect.isclass(one) and issubclass(one, (WorkspaceSettings, Workspace))]
            assert not refused, f"{kind.__name__}.{name}"
    assert not any("Workspace" in str(hint) or "Store" in str(hint) for hint in typing.get_type_hints(Context).values())


def test_no_run_looks_names_up():
    for kind in step_classes():
        used = inspect.getclosurevars(kind.run).globals
        assert not [word for word in used if word.startswith(("find_", "load_split", "load_logits"))], kind.__name__


@pytest.fixture(scope="module")
def taught(prepared, encoder, tmp_path_factory):
    """The prepared workspace, another teacher, an ensemble of both with logits, and a student s."""
    world = World(tiny.copy_workspace(prepared, tmp_path_factory.mktemp("taught") / "w"), None, encoder, None, None)
    world.finetune("other")
    world.finetune("both", ensemble=("tiny-bert", "other"))
    world.finetune("linear", encoder="linear")
    values = tiny.small(model_name="s", **GUIDED)
    compress(tiny.compress_settings(task="sst-2", workspace=world.workspace, **values))
    return world.workspace


def decoy(store, alias, number):
    """Point a name to an artifact whose every file has other bytes. Returns what it pointed to."""
    target = alias.readlink()
    folder = store / f"decoy{number}.00000000"
    source = alias.resolve().parent if alias.is_file() else alias.resolve()
    shutil.copytree(source, folder)
    for path in folder.rglob("*"):
        if path.is_file() and path.name != MANIFEST:
            path.write_bytes(b"another's")
    write_json(folder / MANIFEST, {**read_json(folder / MANIFEST), "key": f"decoy{number}"})
    inside = alias.resolve().name if alias.is_file() else ""
    (store / f"decoy{number}").symlink_to(folder.name)
    alias.unlink()
    alias.symlink_to(store / f"decoy{number}" / inside)
    return target


def digests(folder):
    """Digests of all files that do not record times."""
    left_out = (MANIFEST, "history.jsonl", "result.json")
    files = (path for path in folder.rglob("*") if path.is_file() and path.name not in left_out)
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS)
def test_names_that_are_replaced_after_the_key_was_computed(taught, name, tmp_path, glue, encoder, glove, monkeypatch):
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    roberta = small_roberta.make(tmp_path / "small") if name == "FairseqFinetune" else None
    world = World(tiny.copy_workspace(taught, tmp_path / "w"), glue, encoder, glove, roberta)
    store, build, built = world.workspace / "store", Store._build, []

    def building(paths, step, key, inputs, context, replaced):
        if type(step).__name__ != name:
            return build(paths, step, key, inputs, context)
        aliases = [path for names in NAMES for path in world.workspace.glob(names) if path.is_symlink()]
        before = {alias: decoy(store, alias, i) for i, alias in enumerate(aliases)} if replaced else {}
        assert before or not replaced
        try:
            build(paths, step, key, inputs, context)
        finally:
            for alias, target in before.items():
                alias.unlink()
                alias.symlink_to(target)
            for path in store.glob("decoy*"):
                path.unlink() if path.is_symlink() else shutil.rmtree(path)
        assert read_manifest(store / key).inputs == {role: artifact.key for role, artifact in inputs.items()}
        built.append(digests((store / key).resolve()))
        return None

    for replaced in (False, True):
        monkeypatch.setattr(Store, "_build", lambda *given, replaced=replaced: building(*given, replaced))
        STEPS[name](world)
    assert built
    half = len(built) // 2
    assert built[:half] == built[half:]
