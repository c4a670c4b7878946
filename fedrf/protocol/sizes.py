"""Numbers of values in messages that all clients agree on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from fedrf.config.schema import HIDDEN, Config
from fedrf.data.domains import num_classes

if TYPE_CHECKING:
    from fedrf.protocol.messages import Greeting


def classifier_widths(config: Config) -> tuple[int, ...]:
    """Return the numbers of neurons in C, from the aligned features to the classes."""
    dim, classes = config.model.dim, num_classes(config.data)
    return (dim, classes) if config.model.classifier == "linear" else (dim, HIDDEN, HIDDEN, classes)


@dataclass(frozen=True)
class Sizes:
    """Sizes of a run; None for those that clients have not told yet.

    Attributes
    ----------
    dim
        m, the number of aligned components.
    batch_size
        Largest number of samples in a batch.
    classifier
        Number of parameters of C.
    clients
        Number of clients.
    classes
        Number of classes.
    statistics, rank
        Form of the sources' additive statistics, and the most columns of a compressed covariance.
    features
        2N, or the number of the extractor's features in networks without random features.
    extractor, auxiliary
        Numbers of parameters that are sent.
    sends_gram
        Whether clients send the products of all pairs of their random features before round 1.
    """

    dim: int
    batch_size: int
    classifier: int
    clients: int
    classes: int
    statistics: str
    rank: int
    features: int | None = None
    extractor: int | None = None
    auxiliary: int | None = None
    sends_gram: bool = False

    @classmethod
    def of(cls, config: Config, clients: int) -> Sizes:
        """Return the sizes that follow from the configuration."""
        classifier = sum((before + 1) * after for before, after in pairwise(classifier_widths(config)))
        features = 2 * config.model.num_features if config.model.kernel != "none" else None
        return cls(
            config.model.dim,
            config.train.batch_size,
            classifier,
            clients,
            num_classes(config.data),
            config.align.statistics,
            config.align.rank,
            features,
            sends_gram=config.align.warm_start == "statistics",
        )

    def agreed(self, greetings: Collection[Greeting]) -> Sizes:
        """Return the sizes that most clients told: messages of a client with another network are refused."""
        extractor, auxiliary, features = (
            Counter(getattr(greeting, size) for greeting in greetings).most_common(1)[0][0]
            for size in ("extractor", "auxiliary", "features")
        )
        return replace(self, extractor=extractor, auxiliary=auxiliary, features=self.features or features)
