"""Data sets, one file each. `fedrf.config.registry.DATASETS` finds them by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedrf.data.dataset import Dataset

# In the order in which data sets are listed.
BUILT_IN = {
    "digits": "fedrf.data.datasets.digits:Digits",
    "digit-five": "fedrf.data.datasets.digit_five:DigitFive",
    "office31": "fedrf.data.datasets.office31:Office31",
    "office31-decaf6": "fedrf.data.datasets.office31:Office31Decaf6",
    "office31-surf": "fedrf.data.datasets.office31:Office31Surf",
    "office-caltech10": "fedrf.data.datasets.office_caltech10:OfficeCaltech10",
    "office-caltech10-decaf6": "fedrf.data.datasets.office_caltech10:OfficeCaltech10Decaf6",
    "office-caltech10-surf": "fedrf.data.datasets.office_caltech10:OfficeCaltech10Surf",
    "office-home": "fedrf.data.datasets.office_home:OfficeHome",
    "domainnet": "fedrf.data.datasets.domainnet:DomainNet",
    "visda-c": "fedrf.data.datasets.visda_c:VisdaC",
    "digit-four": "fedrf.data.datasets.digit_four:DigitFour",
    "folder": "fedrf.data.datasets.image_folder:ImageFolder",
    "features": "fedrf.data.datasets.feature_folder:FeatureFolder",
}


def accept(definition: object) -> Dataset:
    """Check the class of a data set and return an instance; a `ValueError` says what is wrong with it."""
    from fedrf.data.dataset import Dataset  # here, because listing names needs neither NumPy nor Pillow

    if not (isinstance(definition, type) and issubclass(definition, Dataset)):
        raise ValueError(f"{definition!r} is not a subclass of fedrf.data.dataset.Dataset")
    missing = sorted(definition.__abstractmethods__)
    if missing:
        raise ValueError(f"{definition.__name__} does not define {', '.join(missing)}")
    for attribute in ("name", "about", "origin"):
        if not hasattr(definition, attribute):
            raise ValueError(f"{definition.__name__} does not set {attribute}")
    if definition.content not in ("images", "features"):
        raise ValueError(f"{definition.__name__}.content={definition.content!r}: allowed: images, features")
    if definition.__module__.startswith(f"{__name__}."):
        return definition()
    from fedrf.data.datasets.outside import OutsideDataset

    return OutsideDataset(definition())
