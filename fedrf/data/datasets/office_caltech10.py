"""Office-Caltech10: the ten classes that Office-31 and Caltech-256 share; as images and as features."""

from __future__ import annotations

from pathlib import Path

from fedrf.config.schema import DataConfig
from fedrf.data.datasets import office31
from fedrf.data.datasets.image_folder import ClassFolders
from fedrf.data.datasets.office_features import Decaf6, OfficeFeatures, Surf

# The name of each class in Office-31, and its names in other copies and in Caltech-256.
NAMES = {
    "back_pack": ("backpack",),
    "bike": ("touring-bike",),
    "calculator": (),
    "headphones": ("headphone", "head-phones"),
    "keyboard": ("computer-keyboard",),
    "laptop_computer": ("laptop", "laptop-101"),
    "monitor": ("computer-monitor",),
    "mouse": ("computer-mouse",),
    "mug": ("coffee-mug",),
    "projector": ("video-projector",),
}
CLASSES = tuple(NAMES)
ALIASES = {alias: name for name, aliases in NAMES.items() for alias in aliases}
COUNTS = {
    domain: tuple(count for name, count in zip(office31.CLASSES, counts, strict=True) if name in NAMES)
    for domain, counts in office31.COUNTS.items()
} | {"caltech": (151, 110, 100, 138, 85, 128, 133, 94, 87, 97)}
DOMAINS = {
    "amazon": ("amazon",),
    "caltech": ("caltech", "caltech10", "caltech-256"),
    "dslr": ("dslr",),
    "webcam": ("webcam",),
}


class OfficeCaltech10(ClassFolders):
    """Office-Caltech10 as images; three domains can also be read from a folder of Office-31."""

    name = "office-caltech10"
    about = "10 office objects in 4 domains, images"
    origin = (
        "https://data.caltech.edu/records/nyy15-4j048 (Caltech-256: the ten classes are domain caltech) and "
        f"{office31.Office31.origin}"
    )
    folders = ("office_caltech10", "Office-Caltech", "Office_Caltech_DA_Dataset")
    domain_names = DOMAINS
    class_names = CLASSES
    class_aliases = ALIASES
    ignored_classes = office31.CLASSES
    counts = COUNTS

    def search_folders(self, config: DataConfig, domain: str) -> list[Path]:
        """Return the folder of this data set, and that of Office-31."""
        own = [self.home(config)]
        return [*own, office31.Office31().home(config)] if domain in office31.COUNTS else own


class _OfficeCaltech10Features(OfficeFeatures):
    folders = OfficeCaltech10.folders
    domain_names = DOMAINS
    class_names = CLASSES
    counts = COUNTS
    origin = "https://github.com/jindongwang/transferlearning (data)"


class OfficeCaltech10Decaf6(Decaf6, _OfficeCaltech10Features):
    """Office-Caltech10 as DeCAF6 features."""

    name = "office-caltech10-decaf6"
    about = "10 office objects in 4 domains, DeCAF6 features"


class OfficeCaltech10Surf(Surf, _OfficeCaltech10Features):
    """Office-Caltech10 as SURF histograms."""

    name = "office-caltech10-surf"
    about = "10 office objects in 4 domains, SURF histograms"
