"""Additive statistics of a domain, its intrinsic dimension and the suggested number of features."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrf.tca.random_features import kernel_matrix
from fedrf.tca.statistics import DomainStatistics, intrinsic_dimension, suggest_num_features
from tests.conftest import make_domains
from tests.tca.reference import scatter_problem


def test_by_hand():
    part = DomainStatistics.of(torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64))
    assert part.count == 2
    assert part.total.tolist() == [4.0, 6.0]
    assert part.gram.tolist() == [[10.0, 14.0], [14.0, 20.0]]
    assert part.mean.tolist() == [2.0, 3.0]
    assert part.nbytes == 8 * (2 + 4)


@settings(deadline=None, max_examples=25)
@given(cuts=st.lists(st.integers(1, 99), max_size=4), size=st.integers(1, 30), seed=st.integers(0, 1000))
def test_parts_add_up_to_the_whole_in_any_order(cuts, size, seed):
    features = torch.from_numpy(np.random.RandomState(seed).randn(100, size))
    parts = [DomainStatistics.of(part) for part in features.tensor_split(sorted(cuts))]
    whole = DomainStatistics.of(features)
    for order in (parts, parts[::-1]):
        total = sum(order, DomainStatistics.empty(size))
        assert total.count == whole.count
        torch.testing.assert_close((total.total, total.gram), (whole.total, whole.gram), rtol=1e-10, atol=1e-10)


def test_single_precision_features_are_summed_in_double():
    # In single precision, 2**24 + 1 == 2**24.
    features = torch.full((3, 1), 1.0)
    many = DomainStatistics(2**24, torch.tensor([2.0**24]).double(), torch.tensor([[2.0**24]]).double())
    assert (many + DomainStatistics.of(features)).gram.item() == 2**24 + 3


def test_adding_different_sizes_is_an_error():
    with pytest.raises(ValueError, match="num_features must be the same"):
        DomainStatistics.of(torch.ones(2, 4)) + DomainStatistics.of(torch.ones(2, 6))


def test_intrinsic_dimension_is_trace_over_norm():
    rows, domain = make_domains(200, 100)
    problem, mapped = scatter_problem(rows, domain, num_features=30)
    matrix = mapped.numpy() @ mapped.numpy().T
    expected = np.trace(matrix) / np.linalg.norm(matrix, 2)
    assert intrinsic_dimension(problem.pooled) == pytest.approx(expected)


@pytest.mark.parametrize("error", [0.5, 0.2])
def test_suggested_num_features_reaches_the_given_error(error):
    rows, domain = make_domains(150, 100)
    problem, _ = scatter_problem(rows, domain, num_features=100)
    suggested = suggest_num_features(problem.pooled, error)
    kernel = kernel_matrix(torch.from_numpy(rows), torch.from_numpy(rows), 2.0).numpy()
    _, mapped = scatter_problem(rows, domain, suggested)
    gram = mapped.numpy() @ mapped.numpy().T
    assert np.linalg.norm(gram - kernel, 2) <= error * np.linalg.norm(kernel, 2)


def test_suggested_num_features_by_hand():
    # 50 orthogonal samples: dim(K) = 50. For error 0.75, s + s²/3 = 0.75 gives s = 1.5 (√2 − 1).
    statistics = DomainStatistics.of(torch.eye(50, 400, dtype=torch.float64))
    expected = 2 * 50 * np.log(100) / (1.5 * (np.sqrt(2) - 1)) ** 2
    assert suggest_num_features(statistics, 0.75) == int(np.ceil(expected))


def test_an_intrinsic_dimension_near_the_number_of_features_gives_a_warning():
    with pytest.warns(UserWarning, match="may be too small"):
        intrinsic_dimension(DomainStatistics.of(torch.eye(50, dtype=torch.float64)))


def test_error_must_be_a_fraction():
    with pytest.raises(ValueError, match="error must be between 0 and 1"):
        suggest_num_features(DomainStatistics.of(torch.ones(3, 2)), 1.5)
