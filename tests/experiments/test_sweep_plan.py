"""Plans of sweeps: the identities of runs, missing inputs, and the numbers of a dry run."""

import re

import pytest
import tiny
from processes import run_script
from sweep_grid import settings, sweep, words, write_grid

from common.data.prepare import prepare
from common.data.tasks import load_task
from common.errors import UserError
from common.store.files import file_sha256
from common.store.workspace import Workspace
from compression.evaluation.evaluate import Evaluate
from compression.experiments.run import identify, plan_sweep
from compression.experiments.sweep.grid import plan_grid
from compression.shrinking.files import Export, Pack
from compression.shrinking.quantize import Quantize
from compression.tokenizers import bpe_files


def test_inputs_that_are_missing_or_stale_are_named_before_anything_runs(workspace, glue, tmp_path):
    path = write_grid(tmp_path)
    (workspace / "data" / "sst-2" / "logits" / "tiny-bert" / "tinybert.parquet").unlink()
    missing = r"tinybert.parquet: no such file; run: python preprocess.py .* --generate-loss tinybert"
    with pytest.raises(UserError, match=missing):
        sweep(path, settings(workspace))
    assert re.search(missing, plan_sweep(plan_grid(path, settings(workspace)), 1)["inputs"])
    prepare(Workspace(workspace), load_task("sst-2"), glue, seed=99)
    with pytest.raises(UserError, match="the splits changed after these rows were augmented"):
        sweep(path, settings(workspace))
    assert not (workspace / "runs").exists()


def test_byte_pairs_that_appear_later_change_the_identity(workspace, tmp_path, monkeypatch):
    monkeypatch.setattr(bpe_files, "CACHE", tmp_path)
    given = tiny.compress_settings(task="sst-2", workspace=workspace, alpha=1, only_original_data=True, **tiny.small())
    given = given.model_copy(update={"bpe_source": "auto"})
    before = identify(given, ())
    for name in ("en.wiki.bpe.vs60.model", "en.wiki.bpe.vs60.d6.w2v.bin"):
        (tmp_path / name).write_bytes(b"pairs")
    after = identify(given, ())
    assert after.id != before.id
    assert after.family != before.family
    assert after.inputs.items() - before.inputs.items() == {
        ("bpe_model", file_sha256(tmp_path / "en.wiki.bpe.vs60.model")),
        ("bpe_vectors", file_sha256(tmp_path / "en.wiki.bpe.vs60.d6.w2v.bin")),
    }
    assert identify(given.model_copy(update={"bpe_source": "train"}), ()).inputs == before.inputs


def test_a_new_version_of_a_later_step_changes_the_identity(workspace, monkeypatch):
    given = tiny.compress_settings(task="sst-2", workspace=workspace, alpha=1, only_original_data=True, **tiny.small())
    before = identify(given, [["distill", "quantize"]])
    monkeypatch.setattr(Quantize, "version", Quantize.version + 1)
    after = identify(given, [["distill", "quantize"]])
    assert (after.id != before.id, after.family) == (True, before.family)


@pytest.mark.parametrize("step", [Evaluate, Pack, Export])
def test_a_new_version_of_scoring_or_of_a_file_changes_the_identity(workspace, monkeypatch, step):
    given = tiny.compress_settings(task="sst-2", workspace=workspace, alpha=1, only_original_data=True, **tiny.small())
    chains = [["distill", "pack", "export"]]
    before = identify(given, chains)
    monkeypatch.setattr(step, "version", step.version + 1)
    after = identify(given, chains)
    assert (after.id != before.id, after.family) == (True, before.family)


def test_a_dry_run_in_a_fresh_workspace_names_no_file_that_the_sweep_makes(tmp_path, capsys):
    shared = [{"preprocess": {}}, {"finetune": {}}, {"preprocess": {"generate_loss": ["processed"]}}]
    assert run_script("experiment.py", *words(write_grid(tmp_path, shared=shared), tmp_path / "w", "--dry-run")) == 0
    assert capsys.readouterr().out == (
        "g: 2 cells x 2 seeds = 4 runs\n"
        "before them, once for sst-2: preprocess, finetune, preprocess\n"
        "4 to do; the jobs before them make their inputs, from which the time is estimated\n"
    )


def test_without_bars_the_shared_jobs_have_none(tmp_path):
    path = write_grid(tmp_path, shared=[{"preprocess": {}}, {"finetune": {}}])
    for shown in (True, False):
        plan = plan_grid(path, settings(tmp_path / "w", loadbar=shown))
        assert [job.settings().loadbar for job in plan.jobs] == [shown, shown]


def test_a_dry_run_prints_numbers_and_time_and_writes_nothing(prepared, swept, capsys):
    plan = plan_sweep(plan_grid(swept[1], settings(prepared)), 1)
    assert (plan["cells"], plan["runs"], plan["finished"], plan["seconds"]) == (2, 4, 0, None)
    assert not (prepared / "experiments").exists()
    plan = plan_sweep(plan_grid(swept[1], settings(swept[0], set_=("seeds=[1,2,3]",))), 1)
    assert (plan["runs"], plan["finished"], plan["failed"]) == (6, 4, 0)
    assert plan["seconds"] is not None
    assert run_script("experiment.py", *words(swept[1], swept[0], "--dry-run", "--set", "seeds=[1,2,3]")) == 0
    assert re.search(r"3 seeds = 6 runs\n4 finished before, 0 failed, 2 to do\ntime: about", capsys.readouterr().out)
