"""The base class of all aligners: scikit-learn's conventions, input checks, and domains given by sign."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import isfinite
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor


class DomainAligner(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, ABC):
    """Base class of the aligners.

    Subclasses store their parameters in ``__init__``, check them in `_check_parameters`, learn in `_learn` and map rows
    in `_transform`. A failed fit keeps the previous fit: `_learn` sets attributes only after everything has succeeded.
    """

    # Both scikit-learn's metadata routing and skada's pipelines read these.
    __metadata_request__fit: ClassVar[dict[str, bool]] = {"sample_domain": True}
    __metadata_request__transform: ClassVar[dict[str, bool]] = {"sample_domain": True}

    n_features_in_: int
    _dtype: torch.dtype

    def fit(self, X: ArrayLike, y: object = None, *, sample_domain: ArrayLike | None = None) -> Self:
        """Learn the map that aligns the domains.

        Parameters
        ----------
        X
            Samples of all domains, in rows. float32 stays float32, anything else becomes float64.
        y
            One label for each row. Methods that learn from source labels need it; the others ignore it. The labels of
            target rows are never read.
        sample_domain
            One integer for each row: positive for source domains, negative for target domains.
        """
        self._check_parameters()
        rows, is_source = self._check_input(X, sample_domain, reset=True, min_rows=2)
        if is_source.all() or not is_source.any():
            present, missing = ("source", "target") if is_source.all() else ("target", "source")
            raise ValueError(f"sample_domain has {present} rows only; {missing} rows are needed too")
        self._learn(rows, torch.from_numpy(is_source), y)
        self._dtype = torch_dtype(rows)
        return self

    def transform(self, X: ArrayLike, *, sample_domain: ArrayLike | None = None) -> NDArray[Any]:
        """Map fitted or new rows to the aligned space.

        Parameters
        ----------
        X
            Samples in rows.
        sample_domain
            As in `fit`. Some methods map source and target rows differently. If None, all rows are target rows.
        """
        check_is_fitted(self)
        rows = self._check_rows(X, reset=False)
        is_source = np.zeros(rows.shape[0], dtype=bool)
        if sample_domain is not None:
            is_source = _check_domain(sample_domain, rows.shape[0])
        return self._transform(rows, torch.from_numpy(is_source)).to(self._dtype).numpy()

    def fit_transform(self, X: ArrayLike, y: object = None, *, sample_domain: ArrayLike | None = None) -> NDArray[Any]:
        """Fit, then map each row according to its domain."""
        return self.fit(X, y, sample_domain=sample_domain).transform(X, sample_domain=sample_domain)

    @abstractmethod
    def _check_parameters(self) -> None:
        """Raise a ValueError that names an invalid parameter and the allowed values."""

    @abstractmethod
    def _learn(self, rows: Any, is_source: Tensor, y: object) -> None:
        """Learn from checked rows of both domains."""

    @abstractmethod
    def _transform(self, rows: Any, is_source: Tensor) -> Tensor:
        """Map checked rows to the aligned space."""

    def _check_rows(self, X: ArrayLike, **options: Any) -> Any:
        return validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], **options)

    def _check_input(
        self, X: ArrayLike, sample_domain: ArrayLike | None, *, reset: bool, min_rows: int = 1
    ) -> tuple[Any, NDArray[np.bool_]]:
        rows = self._check_rows(X, reset=reset, ensure_min_samples=min_rows)
        if sample_domain is None:
            raise ValueError(
                "sample_domain is needed: one integer for each row, > 0 for source rows and < 0 for target rows"
            )
        return rows, _check_domain(sample_domain, rows.shape[0])

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_dtype")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _check_domain(sample_domain: ArrayLike, count: int) -> NDArray[np.bool_]:
    """Return a mask of the source rows among `count` rows."""
    domain = np.asarray(sample_domain)
    if domain.shape != (count,):
        raise ValueError(f"sample_domain must have one entry for each of the {count} rows; its shape is {domain.shape}")
    if domain.dtype.kind not in "iuf" or not np.all(domain == np.round(domain)) or np.any(domain == 0):
        raise ValueError("sample_domain must hold integers, > 0 for source rows and < 0 for target rows")
    return domain > 0


def check_nonnegative(name: str, value: float) -> float:
    """Return a finite number, at least 0, as a float, or raise a ValueError that names it."""
    if not (isinstance(value, int | float | np.number) and isfinite(value) and value >= 0):
        raise ValueError(f"{name} must be a number, at least 0; got {value!r}")
    return float(value)


def check_varied(rows: Tensor, domain: str = "") -> None:
    """Raise a ValueError if all rows are equal: such a domain has neither principal axes nor a covariance."""
    if rows.eq(rows[0]).all():
        raise ValueError(f"all {domain + ' ' if domain else ''}rows are equal; alignment needs different rows")


def torch_dtype(rows: Any) -> torch.dtype:
    """Return the torch dtype of checked rows."""
    return torch.from_numpy(np.empty(0, rows.dtype)).dtype


def to_tensor(rows: Any) -> Tensor:
    """Return checked rows, dense or sparse, as a dense tensor."""
    dense = rows if isinstance(rows, np.ndarray) else rows.toarray()
    return torch.from_numpy(np.require(dense, requirements=["C", "W"]))  # torch warns about read-only memory
