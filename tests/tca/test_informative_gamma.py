"""The informative range of γ of `fedrf.tca.problems`."""

from math import inf

import numpy as np
import pytest
import torch

from fedrf.tca.problems import GramProblem
from fedrf.tca.random_features import kernel_matrix
from tests.conftest import make_domains
from tests.tca.reference import centred, scatter_problem

DIM = 5


@pytest.mark.parametrize("shift", [0.3, 1.0, 3.0])
def test_gamma_has_little_effect_outside_the_informative_range(shift):
    rows, domain = make_domains(150, 100, 6, shift)
    problem, mapped = scatter_problem(rows, domain, num_features=100)
    low, high = problem.informative_gamma_range(DIM)
    bases = {
        gamma: np.linalg.qr(centred(mapped.numpy() @ problem.solve(gamma, DIM).aligner.numpy()))[0]
        for gamma in (0.0, low, 30 * low, high / 30, high, inf)
    }

    def distance(a, b):
        return np.linalg.norm(bases[a] @ bases[a].T - bases[b] @ bases[b].T)

    total = distance(0.0, inf)
    assert distance(0.0, low) < 0.2 * total
    assert distance(high, inf) < 0.2 * total
    assert distance(0.0, 30 * low) > 0.4 * total
    assert distance(high / 30, inf) > 0.4 * total


def test_the_range_scales_with_the_discrepancy():
    near, far = (scatter_problem(*make_domains(shift=shift))[0] for shift in (0.2, 2.0))
    assert far.informative_gamma_range(DIM)[1] > 5 * near.informative_gamma_range(DIM)[1]


def test_kernel_and_feature_problems_have_the_same_range(domains):
    rows, domain = domains
    kernel = kernel_matrix(torch.from_numpy(rows), torch.from_numpy(rows), 2.0)
    exact = GramProblem.regularised(kernel, torch.from_numpy(domain > 0)).informative_gamma_range(DIM)
    estimate = scatter_problem(rows, domain, num_features=2000)[0].informative_gamma_range(DIM)
    np.testing.assert_allclose(estimate, exact, rtol=0.2)


def test_components_without_variance_do_not_widen_the_range():
    problem, _ = scatter_problem(*make_domains(10, 10), num_features=100)
    assert problem.informative_gamma_range(30) == problem.informative_gamma_range(19)
    assert problem.informative_gamma_range(19)[0] > 0
