"""Methods, one file each. `fedrf.config.registry.METHODS` finds them by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedrf.methods.base import Method

# In the order in which methods are listed and compared.
BUILT_IN = {
    "fedrf-oneshot": "fedrf.methods.fedrf_oneshot:FedRFOneShot",
    "fedrf-plus": "fedrf.methods.fedrf_tca:FedRFPlus",
    "fedrf-tca": "fedrf.methods.fedrf_tca:FedRFTCA",
    "source-only": "fedrf.methods.source_only:SourceOnly",
    "source-average": "fedrf.methods.source_average:SourceAverage",
    "fedavg": "fedrf.methods.fedavg:FedAvg",
    "fedavg-rf": "fedrf.methods.fedavg:FedAvgRF",
    "fedsgd": "fedrf.methods.fedsgd:FedSGD",
    "fedprox": "fedrf.methods.fedprox:FedProx",
    "adabn": "fedrf.methods.adabn:AdaBN",
    "autodial": "fedrf.methods.autodial:AutoDIAL",
    "f-dan": "fedrf.methods.f_dan:FDAN",
    "f-dann": "fedrf.methods.f_dann:FDANN",
    "fade-dann": "fedrf.methods.fade:FADE",
    "fade-cdan": "fedrf.methods.fade:ConditionalFADE",
    "fada": "fedrf.methods.fada:FADA",
    "fedka": "fedrf.methods.fedka:FedKA",
    "fda": "fedrf.methods.fda:FDA",
    "kd3a": "fedrf.methods.kd3a:KD3A",
    "pooled": "fedrf.methods.pooled:Pooled",
    "pooled-ddc": "fedrf.methods.pooled:PooledDDC",
    "pooled-dan": "fedrf.methods.pooled:PooledDAN",
    "pooled-dann": "fedrf.methods.pooled:PooledDANN",
    "pooled-cdan": "fedrf.methods.pooled:PooledCDAN",
    "target-oracle": "fedrf.methods.pooled:TargetOracle",
}


def accept(definition: object) -> Method:
    """Check the class of a method and return an instance; a `ValueError` says what is wrong with it."""
    from fedrf.methods.base import Method  # here, because listing names needs neither
    from fedrf.methods.definition import check_definition

    if not (isinstance(definition, type) and issubclass(definition, Method)):
        raise ValueError(f"{definition!r} is not a subclass of fedrf.methods.base.Method")
    check_definition(definition)
    return definition()
