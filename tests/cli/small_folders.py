"""Images of two classes in three domains, whose numbers of images tell domains and classes apart."""

from PIL import Image

from fedrf.config.registry import DATASETS

SIZES = {"amazon": 6, "dslr": 4, "webcam": 5}


def write_images(root):
    """Write the images, as a folder of a user."""
    for domain, size in SIZES.items():
        for name, number in (("mug", size), ("pen", 2 * size)):
            folder = root / domain / name
            folder.mkdir(parents=True)
            for index in range(number):
                Image.new("L", (2, 2), index).save(folder / f"{index:02}.png")
    return root


def shrink_office31(monkeypatch):
    """Make Office-31 a data set of which these images are all."""
    office = DATASETS.find("office31")
    monkeypatch.setattr(type(office), "class_names", ("mug", "pen"))
    monkeypatch.setattr(type(office), "counts", {domain: (size, 2 * size) for domain, size in SIZES.items()})


def statuses(report):
    """Return the status of each domain."""
    return {domain.name: domain.status for domain in report.domains}
