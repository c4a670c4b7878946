"""VisDA-C: 12 classes, as rendered 3D models and as photographs."""

from __future__ import annotations

import os

import numpy as np

from fedrf.config.schema import DataConfig
from fedrf.data.content import ImageFiles
from fedrf.data.datasets.image_folder import ClassFolders
from fedrf.data.datasets.image_lists import keep_existing, read_list
from fedrf.data.samples import Samples

LIST_NAME = "image_list.txt"
DOMAINS = {"train": ("train",), "validation": ("validation", "val")}
COUNTS = {"train": (152_397,), "validation": (55_388,)}


class VisdaC(ClassFolders):
    """VisDA-C, read from its lists of images, or from its class folders if there is no list."""

    name = "visda-c"
    about = "12 classes in 2 domains, rendered and photographed, images"
    origin = "https://ai.bu.edu/visda-2017 (classification: train.tar and validation.tar)"
    folders = ("visda_c", "visda", "visda2017", "visda-2017-c")
    domain_names = DOMAINS
    class_names = (
        *("aeroplane", "bicycle", "bus", "car", "horse", "knife"),
        *("motorcycle", "person", "plant", "skateboard", "train", "truck"),
    )
    counts = COUNTS

    def expected(self, config: DataConfig, domain: str) -> tuple[int, ...]:
        """Return the sizes of a domain; for `train`, the list has one image more than the paper."""
        return (152_397, 152_396) if domain == "train" else super().expected(config, domain)

    def load(self, config: DataConfig, domain: str) -> Samples:
        """Read the list of one domain, or list its class folders."""
        folder = self.locate(config, domain)
        list_path = folder / LIST_NAME
        if not os.path.isfile(list_path):
            return super().load(config, domain)
        listed = read_list(list_path, len(self.class_names))
        for path, label in zip(*listed, strict=True):
            if os.path.dirname(path) != self.class_names[label]:
                raise ValueError(f"{list_path}: {path} has label {label}, so it must be in {self.class_names[label]}/")
        self.check_count(config, domain, len(listed.paths), list_path)
        listed = keep_existing(listed, folder, list_path, config.allow_partial)
        return Samples.all_of(ImageFiles(folder, listed.paths), np.array(listed.labels))
