import numpy as np
import pytest

from fedrf.data.feature_files import FeatureSet
from fedrf.estimators import CORAL, ESTIMATORS, GFK, JDA, RFTCA, RTCA, TCA, DaNN, SubspaceAlignment
from fedrf.experiment.closed_form import (
    CLASSIFIERS,
    SCALINGS,
    accuracies,
    accuracy,
    align_pair,
    save_pair,
    scaled,
    why_not_scored,
)
from tests.conftest import office_caltech, shifted_digits


def domain(shift=0.0, labels=True):
    rng = np.random.RandomState(0)
    truth = rng.randint(2, size=50)
    return FeatureSet(rng.randn(50, 4) + 3 * truth[:, None] + shift, truth if labels else None)


def test_scalings():
    raw = FeatureSet(np.array([[3.0, 4.0], [0.0, 0.0], [6.0, 4.0]]), None)
    np.testing.assert_allclose(scaled(raw, "unit").features[:2], [[0.6, 0.8], [0.0, 0.0]])
    standard = scaled(raw, "standard").features
    np.testing.assert_allclose(standard.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(standard.std(axis=0), 1)
    np.testing.assert_array_equal(scaled(raw, "none").features, raw.features)
    assert set(SCALINGS) == {"unit", "standard", "none"}


def test_constant_columns_become_zero():
    constant = FeatureSet(np.full((7, 2), [0.1, 1 / 3]), None)
    assert (scaled(constant, "standard").features == 0).all()


def test_norms_do_not_overflow():
    huge = FeatureSet(np.full((3, 4), 1e25, np.float32), None)
    np.testing.assert_allclose(scaled(huge, "unit").features, 0.5)
    assert scaled(huge, "unit").features.dtype == np.float32


def test_reasons_why_a_pair_cannot_be_scored():
    good = FeatureSet(np.ones((3, 2)), np.array([1, 2, 2]))
    assert why_not_scored(good, good) == ""
    assert why_not_scored(good, good._replace(labels=None)) == "both files need labels for that"
    assert why_not_scored(good._replace(labels=np.ones(3)), good) == "the source has only one class"
    for labels in (np.array([7, 8, 9]), np.array(["a", "b", "c"])):
        assert why_not_scored(good, good._replace(labels=labels)) == "no label of the target is a class of the source"


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float64])
def test_scaling_gives_floats(dtype):
    assert scaled(FeatureSet(np.ones((5, 2), dtype), None), "unit").features.dtype == np.float64


def test_labels_do_not_influence_alignment():
    estimator = RFTCA(dim=3, num_features=20)
    labelled = align_pair(domain(), domain(1.0), estimator)
    unlabelled = align_pair(domain(labels=False), domain(1.0, labels=False), RFTCA(dim=3, num_features=20))
    np.testing.assert_array_equal(labelled.aligned_target.features, unlabelled.aligned_target.features)
    assert accuracies(unlabelled.source, unlabelled.target) == {}
    assert set(accuracies(labelled.aligned_source, labelled.aligned_target)) == {"1-NN", "SVM", "logistic", "FCNN"}


@pytest.mark.parametrize("aligner", [JDA(dim=3), DaNN(dim=3, steps=5)])
def test_target_labels_are_not_passed_to_the_aligner(aligner):
    moved = domain(1.0)
    other = moved._replace(labels=1 - moved.labels)
    np.testing.assert_array_equal(
        align_pair(domain(), moved, aligner).aligned_target.features,
        align_pair(domain(), other, aligner).aligned_target.features,
    )
    unlabelled = align_pair(domain(), moved._replace(labels=None), aligner)
    np.testing.assert_array_equal(
        unlabelled.aligned_source.features, align_pair(domain(), moved, aligner).aligned_source[0]
    )
    with pytest.raises(ValueError, match=f"{type(aligner).__name__} learns from labels of the source"):
        align_pair(domain(labels=False), moved, aligner)


@pytest.mark.parametrize("aligner", [CORAL(), SubspaceAlignment(dim=3)])
def test_source_and_target_are_mapped_separately(aligner):
    source, target = domain(), domain(1.0)
    pair = align_pair(source, target, aligner)
    sides = [np.ones(50), -np.ones(50)]
    for before, after, side in zip((source, target), (pair.aligned_source, pair.aligned_target), sides, strict=True):
        np.testing.assert_allclose(after.features, aligner.transform(before.features, sample_domain=side), atol=1e-12)
    assert not np.allclose(pair.aligned_source.features, aligner.transform(source.features))


def test_the_network_of_the_paper_has_two_hidden_layers_of_100():
    network = CLASSIFIERS["FCNN"]()
    assert network.hidden_layer_sizes == (100, 100)
    assert accuracy("FCNN", domain(), domain()) == accuracy("FCNN", domain(), domain()) > 0.9


@pytest.mark.parametrize(
    ("aligner", "extra"),
    [(JDA(dim=3), {"aligner", "eigenvalues"}), (CORAL(), set()), (GFK(dim=2), set()), (DaNN(dim=3, steps=2), set())],
)
def test_the_available_arrays_are_saved(aligner, extra, tmp_path):
    save_pair(align_pair(domain(), domain(1.0, labels=False), aligner), tmp_path / "pair.npz")
    with np.load(tmp_path / "pair.npz") as arrays:
        assert set(arrays) == {"source", "target", "source_labels"} | extra


def test_a_failed_write_leaves_nothing_behind(tmp_path, monkeypatch):
    pair = align_pair(domain(), domain(1.0), RFTCA(dim=3, num_features=20))
    kept = tmp_path / "kept.npz"
    save_pair(pair, kept)
    before = kept.read_bytes()

    def fail(*args, **kwargs):
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(OSError, match="disk full"):
        save_pair(pair, kept)
    assert kept.read_bytes() == before
    assert list(tmp_path.iterdir()) == [kept]


ALIGNERS = {
    "TCA": lambda: TCA(dim=20, gamma="auto"),
    "R-TCA": lambda: RTCA(dim=20, gamma="auto"),
    "RF-TCA": lambda: RFTCA(dim=20, num_features=1000, gamma="auto"),
    "JDA": lambda: JDA(dim=20),
    "CORAL": lambda: CORAL(),
    "GFK": lambda: GFK(dim=20),
    "SA": lambda: SubspaceAlignment(dim=20),
    "DaNN": lambda: DaNN(dim=100, steps=100),
}


def test_every_estimator_is_tested():
    assert {type(make()) for make in ALIGNERS.values()} == set(ESTIMATORS.values())


@pytest.mark.parametrize("method", ALIGNERS)
def test_alignment_improves_accuracy_under_a_change_of_light(method):
    digits = shifted_digits()
    source, target = digits["plain"], digits["left"]
    before = accuracy("SVM", source, target)
    pair = align_pair(source, target, ALIGNERS[method]())
    after = accuracy("SVM", pair.aligned_source, pair.aligned_target)
    assert after > before + 0.05


@pytest.mark.realdata
def test_office_caltech_has_four_domains(data_root):
    sizes = {name: len(domain.features) for name, domain in office_caltech(data_root).items()}
    assert sizes == {"A": 958, "C": 1123, "D": 157, "W": 295}


@pytest.mark.realdata
def test_dslr_to_webcam_improves_by_ten_points(data_root):
    domains = office_caltech(data_root)
    source, target = domains["D"], domains["W"]
    before = accuracy("1-NN", source, target)
    pair = align_pair(source, target, ALIGNERS["RF-TCA"]())
    after = accuracy("1-NN", pair.aligned_source, pair.aligned_target)
    assert after > before + 0.1
