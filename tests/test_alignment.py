import torch

from fedrf.alignment import mean_embedding, mmd_loss
from fedrf.features import RandomFourierFeatures, kernel_matrix


def test_mmd_by_hand():
    source = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    target = torch.tensor([[1.0, 1.0]])
    aligner = torch.tensor([[2.0], [4.0]])
    # means (0.5, 0.5) and (1, 1); their difference (-0.5, -0.5) times the aligner is -3
    assert mmd_loss(mean_embedding(source), mean_embedding(target), aligner) == 9.0


def test_mmd_of_many_random_features_is_the_kernel_mmd():
    generator = torch.Generator().manual_seed(0)
    source = torch.randn(40, 3, generator=generator, dtype=torch.float64)
    target = torch.randn(30, 3, generator=generator, dtype=torch.float64) + 1
    features = RandomFourierFeatures(3, 50000, dtype=torch.float64)
    estimate = mmd_loss(
        mean_embedding(features(source)), mean_embedding(features(target)), torch.eye(100000, 1, dtype=torch.float64)
    )
    difference = mean_embedding(features(source)) - mean_embedding(features(target))
    exact = (
        kernel_matrix(source, source, 1.0).mean()
        + kernel_matrix(target, target, 1.0).mean()
        - 2 * kernel_matrix(source, target, 1.0).mean()
    )
    assert estimate == difference[0] ** 2
    torch.testing.assert_close(difference.square().sum(), exact, rtol=0.02, atol=0)
