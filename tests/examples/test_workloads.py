"""The demo's matrices have the properties by which a wrong product is recognized."""

import numpy as np
import pytest

from examples.demo import digits, workloads


def test_the_dct_basis_is_orthonormal_and_knows_constants():
    basis = workloads.dct_basis(12)
    assert np.allclose(basis @ basis.T, np.eye(12), atol=1e-14)
    assert np.allclose(basis @ np.ones(12), [np.sqrt(12), *[0] * 11], atol=1e-14)


def test_rotations_turn():
    turn = workloads.rotation((20, 30, 40))
    assert np.allclose(turn @ turn.T, np.eye(3))
    assert np.isclose(np.linalg.det(turn), 1)
    assert np.allclose(workloads.rotation((0, 0, 90)) @ [1, 0, 0], [0, 1, 0])


def test_markov_rows_sum_to_one():
    chain = workloads.markov_chain(30)
    assert (chain >= 0).all()
    assert np.allclose(chain.sum(axis=1), 1)


ALL = [
    workloads.jpeg_block(),
    workloads.dct(48, 64),
    workloads.turned_points(100),
    workloads.two_steps(40),
    workloads.nearest_digits(digits.draw(300), "drawn", 250, 50),
]


@pytest.mark.parametrize("workload", ALL, ids=[w.title for w in ALL])
def test_findings_tell_a_right_result_from_a_wrong_one(workload):
    assert workload.a.dtype == workload.b.dtype == np.float32
    right = workload.a @ workload.b
    assert workload.finding(right) != workload.finding(np.roll(right, 1, axis=0) * 0.5)
