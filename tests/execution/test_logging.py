"""The log "pyclmm" has compilations, verdicts of the self-check and fallbacks."""

import logging

import numpy as np
import pytest

import pyclmm
from pyclmm.kernels import Program
from pyclmm.opencl import program
from tests.support.faults import refuse_kernels

X = np.ones((20, 20), np.float32)


def records(caplog, name):
    return [r for r in caplog.records if r.name == f"pyclmm.{name}"]


@pytest.fixture
def log(caplog, own_caches):
    """Captures the log. Nothing has been compiled or checked before."""
    caplog.set_level(logging.DEBUG, "pyclmm")
    return caplog


def test_compilation_and_verdict(log, device, capfd):
    pyclmm.matmul(X, X, kernel="naive")
    begun, options, *_, done = [r for r in records(log, "opencl.program") if "naive.cl" in r.message]
    assert begun.levelname == "INFO"
    assert begun.message == f"compiling textbook/naive.cl for {device.name}"
    assert options.levelname == "DEBUG"
    assert "options for textbook/naive.cl: -cl-std=CL1.2 -D" in options.message
    assert done.levelname == "INFO"
    assert f"compiled textbook/naive.cl for {device.name} in " in done.message
    (verdict,) = records(log, "checks.selfcheck")
    assert verdict.message == f"self-check of naive on {device.name}: right"
    (choice,) = records(log, "execution.execute")
    assert "20 x 20 x 20 float32 @ float32" in choice.message
    assert ": naive (" in choice.message
    log.clear()
    pyclmm.matmul(X, X, kernel="naive")
    assert not log.records, "a warm call"
    assert capfd.readouterr().out == ""


def test_a_fallback(log, monkeypatch, device):
    with monkeypatch.context() as patch:
        patch.setenv("PYCLMM_SELFCHECK", "off")  # no verdict is kept
        best = pyclmm.Matmul(X, X).kernel
    log.clear()
    refuse_kernels(monkeypatch, "wrong", best)
    with pytest.warns(pyclmm.KernelWarning):
        planned = pyclmm.Matmul(X, X)
    step, choice = records(log, "execution.execute")
    assert step.levelname == "INFO"
    assert f"on {device.name}: skipping {best}: wrong" in step.message
    assert f"{planned.kernel} (" in choice.message


def test_a_failed_compilation(log, context):
    with pytest.raises(pyclmm.BuildError):
        program.built(context, Program("textbook/naive.cl", ()))
    assert "compiling textbook/naive.cl" in log.text
    assert "failed" in log.text
