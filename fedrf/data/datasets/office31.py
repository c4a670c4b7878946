"""Office-31: 31 classes of office objects, from an online shop and from two cameras; as images and as features."""

from __future__ import annotations

from fedrf.data.datasets.image_folder import ClassFolders
from fedrf.data.datasets.office_features import Decaf6, OfficeFeatures, Surf

CLASSES = (
    *("back_pack", "bike", "bike_helmet", "bookcase", "bottle", "calculator", "desk_chair", "desk_lamp"),
    *("desktop_computer", "file_cabinet", "headphones", "keyboard", "laptop_computer", "letter_tray", "mobile_phone"),
    *("monitor", "mouse", "mug", "paper_notebook", "pen", "phone", "printer", "projector", "punchers", "ring_binder"),
    *("ruler", "scissors", "speaker", "stapler", "tape_dispenser", "trash_can"),
)
DOMAINS = {"amazon": ("amazon",), "dslr": ("dslr",), "webcam": ("webcam",)}
# fmt: off
COUNTS = {
    "amazon": (92, 82, 72, 82, 36, 94, 91, 97, 97, 81, 99, 100, 100, 98, 100, 99, 100, 94, 96, 95, 93, 100, 98, 98, 90,
               75, 100, 99, 99, 96, 64),
    "dslr": (12, 21, 24, 12, 16, 12, 13, 14, 15, 15, 13, 10, 24, 16, 31, 22, 12, 8, 10, 10, 13, 15, 23, 18, 10, 7, 18,
             26, 21, 22, 15),
    "webcam": (29, 21, 28, 12, 16, 31, 40, 18, 21, 19, 27, 27, 30, 19, 30, 43, 30, 27, 28, 32, 16, 20, 30, 27, 40, 11,
               25, 30, 24, 23, 21),
}
# fmt: on


class Office31(ClassFolders):
    """Office-31 as images."""

    name = "office31"
    about = "31 office objects in 3 domains, images"
    origin = "https://faculty.cc.gatech.edu/~judy/domainadapt, 'Adapting visual category models to new domains'"
    folders = ("office31", "Office-31", "office", "domain_adaptation_images")
    domain_names = DOMAINS
    class_names = CLASSES
    counts = COUNTS


class _Office31Features(OfficeFeatures):
    folders = Office31.folders
    domain_names = DOMAINS
    class_names = CLASSES
    counts = COUNTS


class Office31Decaf6(Decaf6, _Office31Features):
    """Office-31 as DeCAF6 features."""

    name = "office31-decaf6"
    about = "31 office objects in 3 domains, DeCAF6 features"
    origin = "https://github.com/jindongwang/transferlearning (data), or computed from the images"


class Office31Surf(Surf, _Office31Features):
    """Office-31 as SURF histograms."""

    name = "office31-surf"
    about = "31 office objects in 3 domains, SURF histograms"
    origin = Office31.origin
