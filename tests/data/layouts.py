"""Small versions of all data sets, in their common file formats."""

import bz2
import struct

import numpy as np
import scipy.io
from PIL import Image

from fedrf.config.registry import DATASETS
from fedrf.config.schema import DataConfig
from fedrf.data.datasets import domainnet, office31, office_caltech10, office_home, visda_c

DIGITS = np.arange(20) % 10


def data(name, root, target="", **keys):
    """Return the configuration of a data set below `root`."""
    return DataConfig(name=name, root=str(root), target=target, **keys)


def load(name, root, domain, **keys):
    """Load one domain of a data set that can be incomplete."""
    return DATASETS.find(name).load(data(name, root, **{"allow_partial": True, **keys}), domain)


def image(path, shade=100, size=(8, 6)):
    """Write one image."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (shade, 50, 200)).save(path)
    return path


def images(folder, per_class=2):
    """Write the images of one class."""
    for number in range(per_class):
        image(folder / f"frame_{number:04}.jpg", shade=number)


def arrays(path, **content):
    path.parent.mkdir(parents=True, exist_ok=True)
    scipy.io.savemat(path, content) if path.suffix == ".mat" else np.savez(path, **content)
    return path


def lines(path, *texts):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{text}\n" for text in texts))
    return path


def class_folders(home, domains, classes, per_class=2):
    for domain in domains:
        for name in classes:
            images(home / domain / name, per_class)


def write_office31(root, per_class=2):
    class_folders(root / "office31", ("amazon/images", "dslr/images", "webcam/images"), office31.CLASSES, per_class)


def write_complete_office31(root):
    """Write as many files as the data set has; all are empty."""
    for domain, counts in office31.COUNTS.items():
        for name, count in zip(office31.CLASSES, counts, strict=True):
            folder = root / "office31" / domain / "images" / name
            folder.mkdir(parents=True)
            for number in range(count):
                (folder / f"frame_{number + 1:04}.jpg").touch()


def write_office_caltech10(root, per_class=2):
    class_folders(root / "office_caltech10", office_caltech10.DOMAINS, office_caltech10.CLASSES, per_class)


def write_features(folder, domains, num_classes, width, keys=("fts", "labels"), end=".mat"):
    labels = np.arange(2 * num_classes) % num_classes + 1
    for seed, domain in enumerate(domains):
        rows = np.random.RandomState(seed).poisson(0.3, size=(len(labels), width)).astype(np.uint8)
        arrays(folder / f"{domain}{end}", **{keys[0]: rows, keys[1]: labels[:, None].astype(np.uint8)})


def write_office31_decaf6(root):
    write_features(root / "office31/decaf6", office31.DOMAINS, 31, 4096, ("feas", "labels"))


def write_office31_surf(root):
    write_features(root / "office31/surf", office31.DOMAINS, 31, 800, end="_SURF_L31.mat")


def write_office_caltech10_decaf6(root):
    write_features(root / "office_caltech10/decaf6", office_caltech10.DOMAINS, 10, 4096, ("feas", "label"))


def write_office_caltech10_surf(root):
    names = ("amazon", "Caltech10", "dslr", "webcam")
    write_features(root / "office_caltech10/surf", names, 10, 800, ("Xt", "Yt"), "_SURF_L10.mat")


def write_office_home(root, per_class=1):
    domains = ("Art", "Clipart", "Product", "Real World")
    class_folders(root / "OfficeHomeDataset_10072016", domains, office_home.OfficeHome.class_names, per_class)


def write_domainnet(root, classes=("aircraft_carrier", "airplane", "alarm_clock"), draw=image):
    home = root / "domainnet"
    for domain in domainnet.DOMAINS:
        for split, numbers in {"train": (1, 2), "test": (3,)}.items():
            listed = [
                (f"{domain}/{name}/{domain}_{label + 1:03}_{number:06}.jpg", label)
                for label, name in enumerate(classes)
                for number in numbers
            ]
            for path, label in listed:
                draw(home / path, shade=label)
            lines(home / f"{domain}_{split}.txt", *(f"{path} {label}" for path, label in listed))


def write_visda_c(root, per_class=2):
    for domain in visda_c.DOMAINS:
        listed = [
            (f"{name}/src_{number}_02691156_{label:032x}__{domain}.png", label)
            for label, name in enumerate(visda_c.VisdaC.class_names)
            for number in range(per_class)
        ]
        for path, label in listed:
            image(root / "visda_c" / domain / path, shade=label)
        lines(root / "visda_c" / domain / "image_list.txt", *(f"{path} {label}" for path, label in listed))


def random_images(seed, size):
    return np.random.RandomState(seed).randint(256, size=(len(DIGITS), size, size, 3)).astype(np.uint8)


def idx(values):
    return struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape) + values.tobytes()


def write_mnist(home):
    folder = home / "MNIST/raw"
    folder.mkdir(parents=True)
    for seed, name in enumerate(("train", "t10k")):
        (folder / f"{name}-images-idx3-ubyte").write_bytes(idx(random_images(seed, 28)[..., 0]))
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(idx(DIGITS.astype(np.uint8)))


def write_usps(home):
    (home / "USPS").mkdir(parents=True)
    for seed, name in enumerate(("usps.bz2", "usps.t.bz2")):
        # Slightly more than the grey value, because readers round down.
        rows = (random_images(seed, 16)[..., 0].reshape(len(DIGITS), -1) + 0.3) / 127.5 - 1
        texts = (
            " ".join([str(digit + 1), *(f"{column}:{value:.4f}" for column, value in enumerate(row, start=1))])
            for digit, row in zip(DIGITS, rows, strict=True)
        )
        (home / "USPS" / name).write_bytes(bz2.compress("".join(f"{text} \n" for text in texts).encode()))


def write_svhn(folder, name="{}_32x32.mat", seed=0):
    """Write 32 × 32 × 3 × n pixels; the digit 0 has the label 10."""
    for index, split in enumerate(("train", "test")):
        labels = np.where(DIGITS == 0, 10, DIGITS)[:, None].astype(np.uint8)
        arrays(folder / name.format(split), X=random_images(seed + index, 32).transpose(1, 2, 3, 0), y=labels)


def write_image_list(home, stem, size=28):
    """Write the digits as image files, with a list of their labels for each split."""
    for seed, split in enumerate(("train", "test")):
        folder = home / f"{stem}_{split}"
        folder.mkdir(parents=True)
        for number, pixels in enumerate(random_images(seed, size)):
            Image.fromarray(pixels).save(folder / f"{number:08}.png")
        lines(home / f"{folder.name}_labels.txt", *(f"{number:08}.png {digit}" for number, digit in enumerate(DIGITS)))


def write_digit_five(root):
    home = root / "Digit-Five"
    write_mnist(home)
    write_usps(home)
    write_svhn(home / "SVHN")
    write_svhn(home / "SYNTH", "synth_{}_32x32.mat", seed=2)
    for seed, split in enumerate(("train", "test"), start=4):
        arrays(home / f"MNIST-M/mnist_m_{split}.npz", X=random_images(seed, 32), y=DIGITS.astype(np.uint8))


def write_folder(root):
    class_folders(root, ("clinic", "home", "ward"), ("cat", "dog"))


def write_feature_folder(root):
    for seed, domain in enumerate(("clinic.npz", "home.mat", "ward.npz")):
        arrays(root / domain, X=np.random.RandomState(seed).randn(12, 5), y=np.arange(12) % 3 + 1)


LAYOUTS = {
    "digit-five": write_digit_five,
    "digit-four": write_digit_five,
    "office31": write_office31,
    "office31-decaf6": write_office31_decaf6,
    "office31-surf": write_office31_surf,
    "office-caltech10": write_office_caltech10,
    "office-caltech10-decaf6": write_office_caltech10_decaf6,
    "office-caltech10-surf": write_office_caltech10_surf,
    "office-home": write_office_home,
    "domainnet": write_domainnet,
    "visda-c": write_visda_c,
    "folder": write_folder,
    "features": write_feature_folder,
}
