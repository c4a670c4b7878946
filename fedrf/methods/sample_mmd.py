"""MMD between samples, as f-DAN, FedKA, FDA and the pooled DDC and DAN minimise it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedrf.methods.lazy_torch import torch

if TYPE_CHECKING:
    from torch import Tensor

WIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)  # of the kernels, in units of the mean squared distance


def multi_kernel_mmd(rows: Tensor, others: Tensor) -> Tensor:
    """Return the squared MMD for the mean of five Gaussian kernels (Long et al. 2015)."""
    return mean_kernel_mmd(rows, others, WIDTHS)


def gaussian_mmd(rows: Tensor, others: Tensor) -> Tensor:
    """Return the squared MMD for one Gaussian kernel, as wide as the mean squared distance."""
    return mean_kernel_mmd(rows, others, (1.0,))


def mean_kernel_mmd(rows: Tensor, others: Tensor, factors: Sequence[float]) -> Tensor:
    """Return the squared MMD for the mean of Gaussian kernels, as a double sum.

    Kernels are exp(−d²/w), with w the mean squared distance between different samples times each of the `factors`.
    """
    both = torch.cat([rows, others])
    squared = torch.cdist(both, both, compute_mode="donot_use_mm_for_euclid_dist").square()
    count = len(both)
    width = (squared.detach().sum() / (count * (count - 1))).clamp(min=torch.finfo(rows.dtype).tiny)
    kernel = torch.stack([(-squared / (width * factor)).exp() for factor in factors]).mean(0)
    signs = torch.cat([rows.new_full((len(rows),), 1 / len(rows)), rows.new_full((len(others),), -1 / len(others))])
    return signs @ kernel @ signs


def linear_mmd(rows: Tensor, others: Tensor) -> Tensor:
    """Return the squared distance between the means: the MMD of a Gaussian kernel to second order in the distances."""
    return (rows.mean(0) - others.mean(0)).square().sum()
