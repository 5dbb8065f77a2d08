"""How many CPU cores and GPUs work may use."""

import os

import pytest
import torch

from common import devices
from common.launch.launcher import Launcher


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine of 64 cores, 6 of which this process may use, without a quota; returns a function that sets one."""
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(10, 16)), raising=False)
    quota = tmp_path / "cpu.max"
    monkeypatch.setattr(devices, "_QUOTA", quota)
    return quota.write_text


def test_cores_are_those_of_the_affinity(machine):
    assert devices.cpu_cores() == 6
    machine("max 100000\n")
    assert devices.cpu_cores() == 6


@pytest.mark.parametrize(("quota", "cores"), [("350000 100000", 3), ("20000 100000", 1), ("900000 100000", 6)])
def test_a_containers_quota_limits_the_cores(machine, quota, cores):
    machine(quota)
    assert devices.cpu_cores() == cores


def test_without_affinities_all_cores_count(machine, monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity")
    assert devices.cpu_cores() == 64


@pytest.mark.parametrize(
    ("launcher", "gpus", "workers"),
    [
        (Launcher("processes"), 0, 6),
        (Launcher("processes", threads=2), 0, 3),
        (Launcher("processes"), 2, 2),
        (Launcher("processes", threads=1), 1, 1),
        (Launcher("processes", cpu=True), 2, 6),
        (Launcher("processes", 5), 1, 5),
        (Launcher("ray"), 1, 6),
        (Launcher(), 0, 1),
    ],
)
def test_one_process_for_each_gpu_or_for_each_core(machine, monkeypatch, launcher, gpus, workers):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert launcher.at_once() == workers
