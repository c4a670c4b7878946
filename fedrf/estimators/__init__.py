"""Closed-form alignment with scikit-learn conventions, for people who have features in hand."""

from fedrf.estimators.base import DomainAligner
from fedrf.estimators.rftca import RFTCA
from fedrf.estimators.rtca import RTCA
from fedrf.estimators.tca import TCA

ESTIMATORS: dict[str, type[DomainAligner]] = {"rf-tca": RFTCA, "r-tca": RTCA, "tca": TCA}

__all__ = ["ESTIMATORS", "RFTCA", "RTCA", "TCA", "DomainAligner"]
