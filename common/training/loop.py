"""The training loop that teachers and students share: best weights kept, early stopping, resumable at any step.

A run that is killed and restarted gives the same bytes as an uninterrupted one: every random draw of a step comes from
(seed, step) alone, and the state file holds everything else a step reads.
"""

import dataclasses
import functools
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from common.energy import EnergyMeter
from common.errors import UserError
from common.progress import bar, say
from common.seeds import derive
from common.stopping import asked, check
from common.tracking import log_metric
from common.training.checkpoint import load_tensors, optimizer_tensors, restore_optimizer, save_tensors

STATE_FILE = "state.safetensors"
"""Name of a run's state file in the folder of its unfinished artifact."""
SECONDS_BETWEEN_CHECKPOINTS = 60.0
STEPS_BETWEEN_LOSSES = 50
"""The logged training loss is a mean over this many steps."""


class Callback:
    """Base class of hooks into training, such as pruning; its methods do nothing."""

    def start(self, state: dict[str, torch.Tensor]) -> None:
        """Called before the first step, with the `state` of a stopped run or an empty dict."""

    def state(self) -> dict[str, torch.Tensor]:
        """Return the tensors that `start` needs to resume, under names that no other callback uses."""
        return {}

    def step(self, before: float, after: float) -> None:
        """Called after an optimizer step that moves training's progress in [0, 1] from `before` to `after`."""

    def eligible(self, progress: float) -> bool:
        """Return whether weights at this progress may be chosen as the best."""
        return True


@dataclasses.dataclass
class Run:
    """A training run. Its callables define what is trained and how; the loop depends on neither."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    batches: Callable[[int], list[np.ndarray]]
    """epoch -> row indices of each batch."""
    losses: Callable[[np.ndarray, int], Iterable[torch.Tensor]]
    """Row indices of a batch, number of parts -> scalar losses of its parts, one at a time; their sum is the loss of
    the batch. See `over_rows`."""
    validate: Callable[[], float] | None
    """Score of the current model; higher is better. None: the last epoch's weights are kept."""
    epochs: int
    patience: int
    """Stop after this many epochs without a better score."""
    seed: int
    state_file: Path
    """File of the run's state at its last checkpoint, from which it resumes."""
    schedule: Callable[[float], float] = lambda progress: 1.0
    """Progress in [0, 1] -> factor of the learning rate."""
    parts: int = 1
    """Number of parts that a batch is split into, at most its rows; their gradients are accumulated."""
    max_grad_norm: float = 1.0
    """Maximum norm of the gradients of all parameters of the optimizer together; 0: no clipping."""
    scaler: torch.amp.GradScaler = dataclasses.field(default_factory=lambda: torch.amp.GradScaler("cpu", enabled=False))
    """Scales the loss of float16 arithmetic, in which small gradients are zero; disabled for wider floats."""
    figures: Callable[[], dict[str, float]] = dict
    """Further figures of the last validation, for the record of the epoch."""
    callbacks: Sequence[Callback] = ()
    stop_after: int | None = None
    """Stop after this many epochs, in the middle of the schedule; None: train for all of them."""
    kept: int = 1
    """Number of epochs with the best scores whose weights are averaged; 1: the weights of the best epoch."""
    label: str = "training"


def over_rows(loss: Callable[[np.ndarray], torch.Tensor]) -> Callable[[np.ndarray, int], Iterator[torch.Tensor]]:
    """Return the `losses` of a run whose loss is a mean over rows. loss: row indices -> scalar loss."""

    def losses(rows: np.ndarray, parts: int) -> Iterator[torch.Tensor]:
        for part in np.array_split(rows, parts):
            yield loss(part) * (len(part) / len(rows))

    return losses


@dataclasses.dataclass
class _State:
    epoch: int = 0
    step: int = 0
    """Steps done in this epoch."""
    total_steps: int = 0
    """Steps done in all epochs."""
    loss_sum: float = 0.0
    recent_losses: list[float] = dataclasses.field(default_factory=list)
    """Losses of the steps since a training loss was last logged."""
    seconds: float = 0.0
    joules: float = 0.0
    """As the machine counts them; 0 if it does not."""
    best_score: float = -math.inf  # below every metric and every negated loss
    best_epoch: int = -1
    kept: list[tuple[float, int]] = dataclasses.field(default_factory=list)
    """Score and number of the epochs whose weights are kept, the best first."""
    history: list[dict[str, Any]] = dataclasses.field(default_factory=list)


def fit(run: Run) -> list[dict[str, Any]]:
    """Train, then load the best epochs' weights into run.model. Returns one dict per epoch.

    It has the epoch's number, loss, score (None without validation) and further figures, the seconds of training so
    far, the joules (if the machine counts them), and whether its weights are kept.
    Raises UserError if the loss is no longer a number, and KeyboardInterrupt on a request to stop, after the current
    step, whose state is saved.
    """
    # Rounds denormal numbers to zero: vanishing gradients of long sentences otherwise slow an RNN several times.
    torch.set_flush_denormal(True)
    try:
        return _fit(run)
    finally:
        torch.set_flush_denormal(False)


def _fit(run: Run) -> list[dict[str, Any]]:
    state, best, extra = _resume(run)
    for callback in run.callbacks:
        callback.start(extra)
    base_rates = [group["lr"] for group in run.optimizer.param_groups]
    while state.epoch < (run.stop_after or run.epochs) and state.epoch - state.best_epoch <= run.patience:
        _train_epoch(run, state, best, base_rates)
        try:
            score = run.validate() if run.validate else math.nan
        except KeyboardInterrupt:  # the steps since the last checkpoint must not be lost
            _save(run, state, best)
            raise
        progress = (state.epoch + 1) / run.epochs
        if run.validate:
            log_metric("validation_score", score, state.total_steps)
        log_metric("learning_rate", base_rates[0] * run.schedule(progress), state.total_steps)
        if not all(callback.eligible(progress) for callback in run.callbacks):
            state.best_epoch = state.epoch  # patience starts when weights may be chosen
        elif not math.isnan(score):
            if score > state.best_score:
                state.best_score, state.best_epoch = score, state.epoch
            _keep(run, state, best, score)
        # JSON has no NaN, the score of a run without validation.
        known_score = None if math.isnan(score) else score
        record = {"epoch": state.epoch, "loss": state.loss_sum / max(state.step, 1), "score": known_score}
        figures = run.figures()
        costs = {"seconds": round(state.seconds, 3)}
        if state.joules:
            costs["joules"] = round(state.joules, 3)
        state.history.append({**record, **figures, **costs})
        more = "".join(f", {name.replace('_', ' ')} {value:.4f}" for name, value in figures.items())
        scored = f", validation {score:.4f}{more}" if run.validate else ""
        say(f"{run.label} epoch {state.epoch + 1}/{run.epochs}: loss {record['loss']:.4f}{scored}")
        state.epoch, state.step, state.loss_sum = state.epoch + 1, 0, 0.0
        _save(run, state, best)
    _set_rates(run, base_rates, 1.0)
    kept = [epoch for _, epoch in state.kept]
    if kept:
        run.model.load_state_dict(_mean(best, kept))
    kept = kept or [state.epoch - 1]
    return [{**record, "kept": record["epoch"] in kept} for record in state.history]


def _keep(run: Run, state: _State, best: dict[str, torch.Tensor], score: float) -> None:
    """Keep this epoch's weights if its score is among the best (ties go to the earlier epoch), and drop other weights.

    best: the kept weights by EPOCH.NAME.
    """
    kept = sorted([*state.kept, (score, state.epoch)], key=lambda entry: -entry[0])
    state.kept, dropped = kept[: run.kept], kept[run.kept :]
    if state.epoch not in [epoch for _, epoch in dropped]:
        # A copy, not a view: training continues.
        tensors = run.model.state_dict().items()
        best.update({f"{state.epoch}.{name}": tensor.detach().clone() for name, tensor in tensors})
    for _, epoch in dropped:
        for name in [name for name in best if name.startswith(f"{epoch}.")]:
            del best[name]


def _mean(best: dict[str, torch.Tensor], epochs: list[int]) -> dict[str, torch.Tensor]:
    """Return the mean weights of some epochs; integers, such as codes, are those of the first one."""
    first = {name.split(".", 1)[1]: tensor for name, tensor in best.items() if name.startswith(f"{epochs[0]}.")}
    if len(epochs) == 1:
        return first

    def mean(name: str, tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point():
            return tensor
        return torch.stack([best[f"{epoch}.{name}"].double() for epoch in epochs]).mean(0).to(tensor.dtype)

    return {name: mean(name, tensor) for name, tensor in first.items()}


def _set_rates(run: Run, base_rates: list[float], factor: float) -> None:
    for group, rate in zip(run.optimizer.param_groups, base_rates, strict=True):
        group["lr"] = rate * factor


def _train_epoch(run: Run, state: _State, best: dict[str, torch.Tensor], base_rates: list[float]) -> None:
    batches = run.batches(state.epoch)
    run.model.train()
    started = last_save = time.monotonic()
    energy = EnergyMeter()
    label = f"{run.label} {state.epoch + 1}/{run.epochs}"
    # torch.manual_seed writes a stack trace for each kind of GPU. That takes half a millisecond, and a step of a small
    # student two.
    on_cpu = next(run.model.parameters()).device.type == "cpu"
    seed = torch.default_generator.manual_seed if on_cpu else torch.manual_seed
    for rows in bar(batches[state.step :], label, total=len(batches), initial=state.step, stops=False):
        progress = (state.epoch + state.step / len(batches)) / run.epochs
        seed(derive(run.seed, state.epoch, state.step))
        _set_rates(run, base_rates, run.schedule(progress))
        loss = train_step(run, rows)
        state.step += 1
        state.total_steps += 1
        state.loss_sum += loss
        state.recent_losses.append(loss)
        if len(state.recent_losses) == STEPS_BETWEEN_LOSSES or state.step == len(batches):
            log_metric("train_loss", statistics.fmean(state.recent_losses), state.total_steps)
            state.recent_losses.clear()
        for callback in run.callbacks:
            callback.step(progress, (state.epoch + state.step / len(batches)) / run.epochs)
        now = time.monotonic()
        if asked() or now - last_save > SECONDS_BETWEEN_CHECKPOINTS:
            state.seconds, started = state.seconds + now - started, now
            state.joules, energy = state.joules + (energy.joules() or 0.0), EnergyMeter()
            _save(run, state, best)
            check()
            last_save = time.monotonic()
    state.seconds += time.monotonic() - started
    state.joules += energy.joules() or 0.0


def train_step(run: Run, rows: np.ndarray) -> float:
    """Take one optimizer step on a batch and return its loss. Raises UserError if the loss is not a number.

    If scaled gradients overflow, the weights do not change and the scale is halved.
    """
    run.optimizer.zero_grad(set_to_none=True)
    value = 0.0
    for loss in run.losses(rows, min(run.parts, len(rows))):
        value += loss.item()
        if not np.isfinite(value):
            raise UserError(f"{run.label}: the loss became {value}; lower --lr (the last checkpoint is kept)")
        run.scaler.scale(loss).backward()
    run.scaler.unscale_(run.optimizer)  # clipping needs the unscaled gradients
    if run.max_grad_norm > 0:
        # The optimizer's parameters, not the model's: the projections of alignment are not part of the model.
        trained = [parameter for group in run.optimizer.param_groups for parameter in group["params"]]
        nn.utils.clip_grad_norm_(trained, run.max_grad_norm)
    run.scaler.step(run.optimizer)
    run.scaler.update()
    return value


def _save(run: Run, state: _State, best: dict[str, torch.Tensor]) -> None:
    groups = {
        "model": run.model.state_dict(),
        "best": best,
        "extra": {name: tensor for callback in run.callbacks for name, tensor in callback.state().items()},
        "optimizer": optimizer_tensors(run.optimizer),
    }
    # Copies, because safetensors refuses tensors that share memory.
    tensors = {
        f"{group}.{name}": tensor.detach().cpu().clone()
        for group, of_group in groups.items()
        for name, tensor in of_group.items()
    }
    metadata = {"state": dataclasses.asdict(state), "scaler": run.scaler.state_dict()}
    save_tensors(run.state_file, tensors, metadata)


def _resume(run: Run) -> tuple[_State, dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Return state, best weights and extra state of an unfinished attempt at this run, or of a new one."""
    if not run.state_file.exists():
        return _State(), {}, {}
    try:
        tensors, metadata = load_tensors(run.state_file)
    except UserError as error:
        say(f"{error}; starting from the beginning")
        return _State(), {}, {}
    device = next(run.model.parameters()).device
    groups: dict[str, dict[str, torch.Tensor]] = {"model": {}, "best": {}, "extra": {}, "optimizer": {}}
    for name, tensor in tensors.items():
        group, name = name.split(".", 1)
        groups[group][name] = tensor.to(device) if group in ("best", "extra") else tensor
    run.model.load_state_dict(groups["model"])
    restore_optimizer(run.optimizer, groups["optimizer"])
    run.scaler.load_state_dict(metadata["scaler"])
    state = _State(**metadata["state"])
    say(f"{run.label}: resuming from epoch {state.epoch + 1}, step {state.step}")
    return state, groups["best"], groups["extra"]


def epochs_done(state_file: Path) -> int:
    """Return the number of epochs that a stopped run has completed."""
    try:
        return load_tensors(state_file)[1]["state"]["epoch"]
    except UserError:  # it has not saved a state yet
        return 0


def trained_parameters(model: nn.Module) -> int:
    """Return the number of trainable parameters."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def linear_schedule(warmup: float) -> Callable[[float], float]:
    """Return a learning-rate factor that rises over the `warmup` share of training and falls to zero at its end."""

    def factor(progress: float) -> float:
        if progress < warmup:
            return (progress + 1e-3) / (warmup + 1e-3)
        return max(0.0, (1 - progress) / (1 - warmup))

    return factor


@functools.cache
def eager(cls: type[torch.optim.Optimizer]) -> type[torch.optim.Optimizer]:
    """Return an equivalent optimizer class without the hooks that torch.compile puts around its methods.

    The hooks are wrappers that import torch._dynamo when they are called, compiled or not: that takes seconds.
    """
    hooked = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")
    methods: dict[str, Any] = {name: getattr(getattr(cls, name), "__wrapped__", getattr(cls, name)) for name in hooked}
    methods["step"] = torch.no_grad()(getattr(cls.step, "__wrapped__", cls.step))
    return type(cls.__name__, (cls,), methods)
