"""The base class of aligners that learn from source labels."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
import torch
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d
from torch import Tensor

from fedrf.estimators.base import DomainAligner


class LabelledAligner(DomainAligner):
    """Base class of aligners that need source labels; it drops the labels of target rows before learning."""

    classes_: Any

    @abstractmethod
    def _learn_classes(self, rows: Any, is_source: Tensor, codes: Tensor, classes: Any) -> None:
        """Learn from checked rows of both domains; `codes` are the indices of the source labels in `classes`."""

    def _learn(self, rows: Any, is_source: Tensor, y: object) -> None:
        name = type(self).__name__
        if y is None:
            raise ValueError(f"{name} requires y to be passed, but the target y is None: it learns from source labels")
        labels = column_or_1d(y)
        if len(labels) != rows.shape[0]:
            raise ValueError(f"y must have one label for each of the {rows.shape[0]} rows; it has {len(labels)}")
        source_labels = labels[is_source.numpy()]
        check_classification_targets(source_labels)
        classes, codes = np.unique(source_labels, return_inverse=True)
        self._learn_classes(rows, is_source, torch.from_numpy(codes), classes)
        self.classes_ = classes

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags
