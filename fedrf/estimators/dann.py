"""The domain adaptive neural network (Ghifary, Kleijn and Zhang, 2014), not to be confused with adversarial DANN."""

from __future__ import annotations

from math import ceil, sqrt
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedrf.estimators.base import check_nonnegative, check_varied, to_tensor
from fedrf.estimators.labelled import LabelledAligner
from fedrf.tca.random_features import check_count, check_sigma, kernel_matrix, median_sigma

MEDIAN_BATCH_ROWS = 128  # enough for a median; the distances between all rows would cost more than the network


class Layer(NamedTuple):
    """A linear layer."""

    weights: Tensor
    bias: Tensor

    @classmethod
    def draw(cls, inputs: int, outputs: int, generator: torch.Generator) -> Layer:
        """Draw weights that preserve the variance of inputs after a ReLU (He initialisation)."""
        weights = torch.randn(inputs, outputs, generator=generator, dtype=torch.float64) * sqrt(2 / inputs)
        return cls(weights.requires_grad_(), torch.zeros(outputs, dtype=torch.float64, requires_grad=True))

    def __call__(self, rows: Tensor) -> Tensor:
        """Return the outputs for these rows."""
        return torch.addmm(self.bias, rows, self.weights)


class DaNN(LabelledAligner):
    """Train a network with one hidden layer on the source, and align the domains in that layer.

    The loss is the cross entropy of the source labels plus `weight` times the squared MMD, with a Gaussian kernel,
    between the outputs of the hidden layer for source and target rows, before the ReLU. Both terms are computed on
    mini-batches of each domain, so that no matrix of all rows × all rows is formed. The aligned rows are the outputs of
    the hidden layer after the ReLU.

    All rows are first shifted and scaled together to mean zero and to variance one on average over the columns. All
    random numbers come from a separate generator, in double precision.

    Parameters
    ----------
    dim
        Number of hidden units.
    sigma
        σ, the width of the kernel, or ``"median"`` for the median distance of the hidden outputs in each batch.
    weight
        Weight of the MMD, at least 0 (γ in the paper of DaNN).
    steps
        Number of Adam steps.
    batch_size
        Rows of each domain per step, drawn with replacement; all rows if a domain has no more than that.
    learning_rate
        Learning rate of Adam.
    random_state
        Seed of the initial weights and of the batches, an integer.

    Attributes
    ----------
    hidden_, output_
        The trained layers.
    losses_
        Cross entropy and squared MMD at each step.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.RandomState(0).randn(60, 5)
    >>> domain, y = np.repeat([1, -1], 30), np.arange(60) % 2
    >>> X[:, 0] += 6 * y + (domain < 0)
    >>> DaNN(dim=8, steps=20).fit_transform(X, np.where(domain > 0, y, -1), sample_domain=domain).shape
    (60, 8)
    """

    hidden_: Layer
    output_: Layer
    losses_: Any

    def __init__(
        self,
        dim: int = 256,
        sigma: float | str = "median",
        weight: float = 1.0,
        steps: int = 300,
        batch_size: int = 128,
        learning_rate: float = 1e-3,
        random_state: int = 0,
    ) -> None:
        self.dim = dim
        self.sigma = sigma
        self.weight = weight
        self.steps = steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.random_state = random_state

    def _check_parameters(self) -> None:
        for name in ("dim", "steps", "batch_size"):
            check_count(name, getattr(self, name))
        for name in ("weight", "learning_rate"):
            check_nonnegative(name, getattr(self, name))
        if self.sigma != "median":
            check_sigma(self.sigma)
        seed = self.random_state
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**32:
            raise ValueError(f"random_state must be an integer from 0 to 2**32 - 1; got {seed!r}")

    def _learn_classes(self, rows: Any, is_source: Tensor, codes: Tensor, classes: Any) -> None:
        dense = to_tensor(rows).double()
        check_varied(dense)
        centre = dense.mean(0)
        spread = float((dense - centre).square().mean().sqrt())
        inputs = (dense - centre) / spread
        generator = torch.Generator().manual_seed(int(self.random_state))
        hidden = Layer.draw(inputs.shape[1], self.dim, generator)
        output = Layer.draw(self.dim, len(classes), generator)
        with torch.enable_grad():
            losses = self._train(hidden, output, inputs[is_source], codes, inputs[~is_source], generator)
        # Fold the scaling of the rows into the first layer, so that `transform` takes raw rows.
        weights, bias = hidden.weights.detach() / spread, hidden.bias.detach()
        self.hidden_ = Layer(weights, bias - centre @ weights)
        self.output_ = Layer(output.weights.detach(), output.bias.detach())
        self.losses_ = np.array(losses)

    def _train(
        self, hidden: Layer, output: Layer, source: Tensor, codes: Tensor, target: Tensor, generator: torch.Generator
    ) -> list[tuple[float, float]]:
        optimizer = torch.optim.Adam([*hidden, *output], lr=self.learning_rate)
        losses = []
        for _ in range(self.steps):
            batch = _batch_indices(len(source), self.batch_size, generator)
            hidden_source = hidden(source[batch])
            hidden_target = hidden(target[_batch_indices(len(target), self.batch_size, generator)])
            error = cross_entropy(output(hidden_source.relu()), codes[batch])
            discrepancy = squared_mmd(hidden_source, hidden_target, self.sigma)
            optimizer.zero_grad()
            (error + self.weight * discrepancy).backward()
            optimizer.step()
            losses.append((error.item(), discrepancy.item()))
        return losses

    def _transform(self, rows: Any, is_source: Tensor) -> Tensor:
        return self.hidden_(to_tensor(rows).double()).relu()

    @property
    def _n_features_out(self) -> int:
        return len(self.hidden_.bias)


def squared_mmd(x: Tensor, y: Tensor, sigma: float | str) -> Tensor:
    """Return the squared MMD of two samples, mean k(x,x') + mean k(y,y') − 2 mean k(x,y), for a Gaussian kernel.

    The median distance is computed on some of the rows. It only sets the scale, so no gradient flows through it.
    """
    both = torch.cat([x, y])
    width = _median_distance(both.detach()) if sigma == "median" else check_sigma(sigma)
    signs = torch.cat([x.new_full((len(x),), 1 / len(x)), y.new_full((len(y),), -1 / len(y))])
    return signs @ kernel_matrix(both, both, width) @ signs


def _median_distance(rows: Tensor) -> float:
    sample = rows[:: ceil(len(rows) / MEDIAN_BATCH_ROWS)]
    # If all rows are equal, as in a batch of one row, the width does not matter.
    return median_sigma(sample) if sample.ne(sample[0]).any() else 1.0


def _batch_indices(count: int, size: int, generator: torch.Generator) -> Tensor:
    """Return the indices of one batch of `count` rows."""
    return torch.arange(count) if count <= size else torch.randint(count, (size,), generator=generator)
