import numpy as np
import pytest

from fedrf.estimators import RFTCA, RTCA, rftca
from tests.conftest import make_domains

SETTINGS = {"dim": 4, "num_features": 30, "sigma": 2.0, "gamma": 0.01}


@pytest.fixture
def pooled(domains):
    rows, domain = domains
    return RFTCA(**SETTINGS).fit(rows, sample_domain=domain)


def assert_same_solution(a, b, rows):
    np.testing.assert_allclose(a.transform(rows), b.transform(rows), atol=1e-10)
    np.testing.assert_allclose(a.eigenvalues_, b.eigenvalues_, rtol=1e-10)
    np.testing.assert_allclose(a.mmd_, b.mmd_, rtol=1e-8)


def test_partial_fit_in_chunks_equals_one_fit(domains, pooled):
    rows, domain = domains
    streamed = RFTCA(**SETTINGS)
    for start in range(0, len(rows), 17):
        streamed.partial_fit(rows[start : start + 17], sample_domain=domain[start : start + 17])
    assert_same_solution(streamed, pooled, rows)


def test_domains_can_be_added_one_after_the_other(domains, pooled):
    rows, domain = domains
    streamed = RFTCA(**SETTINGS).partial_fit(rows[domain > 0], sample_domain=domain[domain > 0])
    with pytest.raises(ValueError, match="no target rows have been added yet"):
        streamed.transform(rows)
    streamed.partial_fit(rows[domain < 0], sample_domain=domain[domain < 0])
    assert_same_solution(streamed, pooled, rows)


def test_merged_estimators_equal_pooled_rows(domains, pooled):
    rows, domain = domains
    parts = [RFTCA(**SETTINGS).partial_fit(rows[index::3], sample_domain=domain[index::3]) for index in range(3)]
    assert_same_solution(parts[0].merge(parts[1]).merge(parts[2]), pooled, rows)


def test_clients_with_one_domain_each_merge(domains, pooled):
    rows, domain = domains
    source, target = (
        RFTCA(**SETTINGS).partial_fit(rows[side], sample_domain=domain[side]) for side in (domain > 0, domain < 0)
    )
    assert_same_solution(target.merge(source), pooled, rows)


def test_merging_does_not_change_the_other_estimator(domains):
    rows, domain = domains
    first, second = (RFTCA(**SETTINGS).fit(rows[i::2], sample_domain=domain[i::2]) for i in range(2))
    before = second.transform(rows)
    first.merge(second).partial_fit(rows, sample_domain=domain)
    np.testing.assert_array_equal(second.transform(rows), before)


def test_adding_rows_to_one_estimator_of_a_path_does_not_change_the_others(domains, pooled):
    rows, domain = domains
    before = pooled.transform(rows)
    pooled.gamma_path([0.01])[0].partial_fit(rows + 1, sample_domain=domain)
    np.testing.assert_array_equal(pooled.transform(rows), before)


@pytest.mark.parametrize("change", [{"random_state": 1}, {"sigma": 2.1}, {"num_features": 31}, {"kernel": "cauchy"}])
def test_different_frequencies_do_not_merge(domains, pooled, change):
    rows, domain = domains
    other = RFTCA(**{**SETTINGS, **change}).fit(rows, sample_domain=domain)
    with pytest.raises(ValueError, match="different frequencies cannot be merged: RandomFourierFeatures"):
        pooled.merge(other)


def test_the_order_of_rows_does_not_matter(domains):
    rows, domain = domains
    order = np.random.RandomState(3).permutation(len(rows))
    assert_same_solution(
        RFTCA(**SETTINGS).fit(rows[order], sample_domain=domain[order]),
        RFTCA(**SETTINGS).fit(rows, sample_domain=domain),
        rows,
    )


def test_fit_after_partial_fit_starts_again(domains, pooled):
    rows, domain = domains
    reused = RFTCA(**SETTINGS).partial_fit(rows + 5, sample_domain=domain).fit(rows, sample_domain=domain)
    assert_same_solution(reused, pooled, rows)


@pytest.mark.parametrize("change", [{"random_state": 1}, {"sigma": 2.1}, {"num_features": 31}, {"kernel": "cauchy"}])
def test_frequencies_cannot_change_between_parts(domains, pooled, change):
    rows, domain = domains
    before = pooled.transform(rows)
    with pytest.raises(ValueError, match="cannot change between calls of partial_fit"):
        pooled.set_params(**change).partial_fit(rows, sample_domain=domain)
    np.testing.assert_array_equal(pooled.transform(rows), before)


def test_gamma_after_partial_fit(domains):
    rows, domain = domains
    assert RFTCA(**SETTINGS).partial_fit(rows, sample_domain=domain).gamma_ == 0.01


def test_memory_chunks_do_not_change_the_result(domains, pooled, monkeypatch):
    rows, domain = domains
    monkeypatch.setattr(rftca, "CHUNK_BYTES", 60 * 8 * 7)
    assert_same_solution(RFTCA(**SETTINGS).fit(rows, sample_domain=domain), pooled, rows)


def test_approaches_r_tca_as_num_features_grows():
    rows, domain = make_domains(60, 40, 3)
    exact = RTCA(dim=2, sigma=2.0, gamma=0.01).fit(rows, sample_domain=domain)
    approximate = RFTCA(dim=2, num_features=1500, sigma=2.0, gamma=0.01).fit(rows, sample_domain=domain)
    np.testing.assert_allclose(approximate.eigenvalues_, exact.eigenvalues_, rtol=0.1)
    np.testing.assert_allclose(approximate.mmd_, exact.mmd_, rtol=0.1, atol=1e-3)


def test_suggest_num_features_is_larger_for_a_narrower_kernel(domains):
    rows, domain = domains
    wide, narrow = (
        RFTCA(dim=4, num_features=200, sigma=sigma).fit(rows, sample_domain=domain).suggest_num_features()
        for sigma in (5.0, 1.0)
    )
    assert wide < narrow


def test_the_same_settings_give_the_same_bits(domains):
    rows, domain = domains
    first, second = (RFTCA(**SETTINGS).fit_transform(rows, sample_domain=domain) for _ in range(2))
    np.testing.assert_array_equal(first, second)
