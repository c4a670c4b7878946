"""Office-Home: 65 classes of objects in offices and homes, in four styles."""

from __future__ import annotations

from fedrf.data.datasets.image_folder import ClassFolders

DOMAINS = {
    "art": ("Art",),
    "clipart": ("Clipart",),
    "product": ("Product",),
    "real-world": ("Real World", "Real"),
}
COUNTS = {"art": (2_427,), "clipart": (4_365,), "product": (4_439,), "real-world": (4_357,)}


class OfficeHome(ClassFolders):
    """Office-Home as images."""

    name = "office-home"
    about = "65 objects of offices and homes in 4 domains, images"
    origin = "https://www.hemanthdv.org/officeHomeDataset.html"
    folders = ("office_home", "OfficeHomeDataset", "OfficeHomeDataset_10072016")
    domain_names = DOMAINS
    class_names = (
        *("Alarm_Clock", "Backpack", "Batteries", "Bed", "Bike", "Bottle", "Bucket", "Calculator", "Calendar"),
        *("Candles", "Chair", "Clipboards", "Computer", "Couch", "Curtains", "Desk_Lamp", "Drill", "Eraser"),
        *("Exit_Sign", "Fan", "File_Cabinet", "Flipflops", "Flowers", "Folder", "Fork", "Glasses", "Hammer", "Helmet"),
        *("Kettle", "Keyboard", "Knives", "Lamp_Shade", "Laptop", "Marker", "Monitor", "Mop", "Mouse", "Mug"),
        *("Notebook", "Oven", "Pan", "Paper_Clip", "Pen", "Pencil", "Postit_Notes", "Printer", "Push_Pin", "Radio"),
        *("Refrigerator", "Ruler", "Scissors", "Screwdriver", "Shelf", "Sink", "Sneakers", "Soda", "Speaker"),
        *("Spoon", "TV", "Table", "Telephone", "ToothBrush", "Toys", "Trash_Can", "Webcam"),
    )
    counts = COUNTS
