"""Closed-form and small domain aligners for given features, as scikit-learn estimators."""

from fedrf.estimators.base import DomainAligner
from fedrf.estimators.components import ComponentAligner
from fedrf.estimators.coral import CORAL
from fedrf.estimators.dann import DaNN
from fedrf.estimators.gfk import GFK
from fedrf.estimators.jda import JDA
from fedrf.estimators.rftca import RFTCA
from fedrf.estimators.rtca import RTCA
from fedrf.estimators.subspace import SubspaceAlignment
from fedrf.estimators.tca import TCA

ESTIMATORS: dict[str, type[DomainAligner]] = {
    "rf-tca": RFTCA,
    "r-tca": RTCA,
    "tca": TCA,
    "jda": JDA,
    "coral": CORAL,
    "gfk": GFK,
    "sa": SubspaceAlignment,
    "dann": DaNN,
}

__all__ = [
    "CORAL",
    "ESTIMATORS",
    "GFK",
    "JDA",
    "RFTCA",
    "RTCA",
    "TCA",
    "ComponentAligner",
    "DaNN",
    "DomainAligner",
    "SubspaceAlignment",
]
