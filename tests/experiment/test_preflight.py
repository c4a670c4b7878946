"""What cannot run is refused before anything is started or created: one line, exit code 2, nothing left behind."""

import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import fedrf
from fedrf.config.loader import load_config
from fedrf.data.content import ImageFiles
from fedrf.data.preflight import check_clients
from fedrf.experiment import disk
from fedrf.experiment.resolve import resolve_config
from tests.cli.calls import call
from tests.conftest import SYNC
from tests.experiment.conftest import image_settings, write_images
from tune.cli import main as tune

NOWHERE = "ray://127.0.0.1:1"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty working directory; no Ray is known to this process."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("ray.is_initialized", lambda: False)  # tests before may have started one
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def assert_refused(code, out, err, complaint, here):
    assert code == 2, err
    assert complaint in err
    assert len(err.strip().splitlines()) == 1, err
    assert out == ""
    assert not list(here.iterdir())


def extra_class(root):
    shutil.copytree(root / "home/red", root / "home/violet")


def empty_target(root):
    shutil.rmtree(root / "home")
    (root / "home").mkdir()


def single_image(root):
    shutil.rmtree(root / "home")
    shutil.copytree(root / "ward/red", root / "home/red", ignore=lambda _, names: sorted(names)[1:])


def unlabelled_source(root):
    for path in sorted((root / "ward").glob("*/*.jpg")):
        path.rename(root / "ward" / f"{path.parent.name}-{path.name}")
        if not any(path.parent.iterdir()):
            path.parent.rmdir()


def unlabelled_target(root):
    (root / "ward").rename(root / "spare")
    (root / "home").rename(root / "ward")
    unlabelled_source(root)
    (root / "ward").rename(root / "home")
    (root / "spare").rename(root / "ward")


@pytest.mark.parametrize(
    ("damage", "keys", "complaint"),
    [
        (extra_class, [], "home/violet: not one of the classes blue, green, red; see data.classes"),
        (empty_target, [], "home: no image in it or its class folders"),
        (single_image, [], "home has 1 samples; a client needs at least 2"),
        (unlabelled_source, ["data.classes=[red, green, blue]"], "ward is a source and has no labels"),
        (unlabelled_target, ["method=target-oracle"], "an oracle needs labels of the target, which has none"),
        (lambda root: None, ["data.partition=even", "data.clients=10"], "use at most 9 clients"),
    ],
    ids=["extra class", "empty target", "single image", "unlabelled source", "unlabelled target", "many clients"],
)
def test_folders_that_no_federation_can_use(here, tmp_path, monkeypatch, capfd, damage, keys, complaint):
    root = write_images(tmp_path / "root")
    damage(root)
    keys = ["data.name=folder", f"data.root={root}", "data.target=home", *keys]
    assert_refused(*call(["run", *keys, "--local"], monkeypatch, capfd), complaint, here)


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        (["data.partition=even", "data.clients=700"], "1,198 samples are too few"),  # of handwritten
        (["data.partition=even", "data.clients=20", "data.samples=30"], "use at most 15 clients"),
        (["data.missing_classes=9", "data.samples=4"], "leaves 0 samples of"),
    ],
)
def test_digits_that_cannot_be_split(here, monkeypatch, capfd, keys, complaint):
    assert_refused(
        *call(["run", "digits", "data.target=street", *keys, "--local"], monkeypatch, capfd), complaint, here
    )


def test_no_image_is_decoded(images, monkeypatch):
    monkeypatch.setattr(ImageFiles, "image", lambda *_: pytest.fail("an image was decoded"))
    for keys in ({}, {"data__skip_corrupt": True, "data__partition": "dirichlet", "data__clients": 2}):
        check_clients(load_config(None, image_settings(images, **keys)))


def test_a_published_data_set_is_checked_by_its_size():
    """Nothing of Digit-Five is read, which takes many seconds."""
    keys = {"data.name": "digit-five", "data.target": "mnist", "data.partition": "dirichlet", "data.root": "nowhere"}
    check_clients(load_config(None, {**keys, "data.clients": 3000, "data.concentration": 0.01}))
    with pytest.raises(ValueError, match="use at most 3645 clients"):  # of USPS
        check_clients(load_config(None, {**keys, "data.clients": 4000}))


@pytest.mark.parametrize("command", ["run", "run by environment", "compare", "tune", "paper"])
def test_a_cluster_that_does_not_answer(here, monkeypatch, capfd, command):
    options = ["--address", NOWHERE]
    if command == "run by environment":
        monkeypatch.setenv("RAY_ADDRESS", NOWHERE)
        options = []
    words = {"compare": ["compare", "digits"], "paper": ["paper", "run", "theorem1", "--quick"]}
    if command == "tune":
        monkeypatch.setattr(sys, "argv", ["tune", "digits", "method=fedrf-plus", *options])
        with pytest.raises(SystemExit) as stopped:
            tune()
        result = (stopped.value.code, *capfd.readouterr())
    else:
        result = call([*words.get(command, ["run", "digits"]), *options], monkeypatch, capfd)
    assert_refused(*result, f"--address: no Ray cluster answers at '{NOWHERE}' (Connection refused)", here)


@pytest.mark.parametrize("command", [["run", "digits"], ["compare", "digits"]], ids=["run", "compare"])
def test_folders_that_cannot_be_written(here, monkeypatch, capfd, command):
    full = SimpleNamespace(free=20e6)
    monkeypatch.setattr(disk.shutil, "disk_usage", lambda path: full)
    result = call([*command, "--out", "new/run", "--local"], monkeypatch, capfd)
    assert_refused(*result, "--out: 20 MB are free on the disk of new/run; at least 50 MB are needed", here)
    long = "x" * 300
    result = call([*command, "--out", long, "--local"], monkeypatch, capfd)
    assert_refused(*result, f"--out: {long} cannot be written (File name too long)", here)

    def refuse(dir):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(disk, "TemporaryFile", refuse)
    result = call([*command, "--local"], monkeypatch, capfd)
    assert_refused(*result, "cannot be written (Permission denied); choose another folder", here)


def test_a_folder_below_a_file(here, tmp_path, monkeypatch, capfd):
    (tmp_path / "notes").write_text("mine")
    result = call(["run", "digits", "--out", tmp_path / "notes/run", "--local"], monkeypatch, capfd)
    assert_refused(*result, "notes is a file", here)


def test_a_run_whose_data_is_gone_is_not_resumed_and_stays_as_it_is(here, tmp_path, monkeypatch, capfd):
    root, run = write_images(tmp_path / "root"), tmp_path / "run"
    run.mkdir()
    resolve_config(None, image_settings(root)).save(run / "config.yaml")
    shutil.rmtree(root / "ward")
    result = call(["run", "--resume", run, "--local"], monkeypatch, capfd)
    assert_refused(*result, "domain ward not found", here)
    assert [path.name for path in run.iterdir()] == ["config.yaml"]


def test_what_is_written_after_the_check_of_a_file_is_read(tmp_path):
    """Labels of feature files are kept between checks, until a file changes."""
    for name in ("a", "b", "t"):
        np.savez(tmp_path / f"{name}.npz", X=np.random.RandomState(0).randn(20, 4), y=np.arange(20) % 2)
    keys = {**SYNC, "data.name": "features", "data.root": str(tmp_path), "data.target": "t", "data.classes": ["0", "1"]}
    keys |= {"model.extractor": "identity"}
    keys.pop("data.samples")
    check_clients(load_config(None, keys))
    np.savez(tmp_path / "t.npz", X=np.random.RandomState(0).randn(21, 4), y=np.arange(21) % 3)
    with pytest.raises(ValueError, match=r"t\.npz: label 2 is not one of the classes 0, 1"):
        fedrf.run(None, keys, out=tmp_path / "run", local=True)
    assert not (tmp_path / "run").exists()


def test_a_run_directory_cannot_bring_its_own_code(tmp_path, monkeypatch):
    (tmp_path / "config.yaml").write_text("method: brought:Method\n")
    (tmp_path / "brought.py").write_text("raise SystemExit('ran')\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="method=brought:Method would be imported from the run directory"):
        fedrf.run(resume=tmp_path, local=True)


def test_an_empty_configuration_is_one_line(tmp_path):
    (tmp_path / "config.yaml").write_text("")
    with pytest.raises(ValueError, match=r"config.yaml is damaged: it is no mapping of keys"):
        fedrf.run(resume=tmp_path, local=True)
