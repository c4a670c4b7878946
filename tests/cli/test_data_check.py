import json
import subprocess
import sys
from io import StringIO

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from fedrf.cli.data_check import ClientShare, DomainCheck, Report, check, print_report, print_survey, survey
from fedrf.config.loader import load_config
from fedrf.data.partition import PARTITIONERS
from fedrf.config.registry import DATASETS
from fedrf.data.domains import clients_of, load_samples

SIZES = {"amazon": 6, "dslr": 4, "webcam": 5}


@pytest.fixture(autouse=True)
def no_root(monkeypatch):
    monkeypatch.delenv("FEDRF_DATA", raising=False)


@pytest.fixture
def root(tmp_path):
    """Images of two classes in three domains, as anybody's folder: numbers of images tell domains and classes apart."""
    for domain, size in SIZES.items():
        for name, number in (("mug", size), ("pen", 2 * size)):
            folder = tmp_path / domain / name
            folder.mkdir(parents=True)
            for index in range(number):
                Image.new("L", (2, 2), index).save(folder / f"{index:02}.png")
    return tmp_path


@pytest.fixture
def small_office(root, monkeypatch):
    """The same as an Office-31 that is as small as that."""
    office = DATASETS.find("office31")
    monkeypatch.setattr(type(office), "class_names", ("mug", "pen"))
    monkeypatch.setattr(type(office), "counts", {domain: (size, 2 * size) for domain, size in SIZES.items()})
    return root


def shown(report, width=120):
    console = Console(file=StringIO(), width=width)
    print_report(report, console)
    return console.file.getvalue()


def statuses(report):
    return {one.name: one.status for one in report.domains}


def test_survey_knows_every_data_set_and_what_is_there_of_it(small_office):
    (small_office / "dslr").rename(small_office / "elsewhere")
    found = {one.name: one for one in survey(small_office)}
    assert list(found) == list(DATASETS)
    assert found["office31"].found == {name: str(small_office / name) for name in ("amazon", "webcam")}
    assert list(found["office31"].missing) == ["dslr"]
    assert str(small_office / "dslr") in found["office31"].missing["dslr"]
    assert set(found["digits"].found.values()) == {None}
    for name in ("folder", "features"):
        assert found[name].domains == ()
    console = Console(file=StringIO(), width=250)
    print_survey(list(found.values()), small_office, console)
    text = " ".join(console.file.getvalue().split())
    for words in (
        "amazon, webcam; missing: dslr",
        "needs no files",
        "nothing",
        "any folder",
        "your own images",
        f"office31: {found['office31'].origin}",
    ):
        assert words in text


def test_without_a_root_everything_but_what_is_drawn_is_missing():
    for one in survey():
        drawn = {"digits": one.domains, "digit-four": ("rendered",)}
        assert tuple(one.found) == tuple(drawn.get(one.name, ()))
        assert all("$FEDRF_DATA" in reason for reason in one.missing.values())


def test_a_whole_data_set_is_fine(small_office):
    report = check("office31", root=str(small_office))
    assert (report.ok, report.classes, report.clients) == (True, ("mug", "pen"), ())
    for one, (domain, size) in zip(report.domains, SIZES.items(), strict=True):
        assert (one.name, one.samples, one.expected, one.counts) == (domain, 3 * size, (3 * size,), (size, 2 * size))
        assert one.where == str(small_office / domain)
    assert "amazon  ok           18        18   2 of 2" in shown(report)
    assert "amazon    6   12     18" in shown(report)


def test_missing_and_wrong_domains_leave_the_others_to_be_seen(small_office):
    (small_office / "dslr").rename(small_office / "elsewhere")
    next((small_office / "webcam/pen").iterdir()).unlink()
    report = check("office31", root=str(small_office))
    assert not report.ok
    assert statuses(report) == {"amazon": "ok", "dslr": "missing", "webcam": "wrong"}
    text = " ".join(shown(report, 500).split())
    assert f"domain dslr not found; looked for {small_office}/dslr" in text
    assert "14 samples of office31, domain webcam; expected 15" in text
    partial = check("office31", ["data.allow_partial=true"], str(small_office))
    assert statuses(partial) == {"amazon": "ok", "dslr": "missing", "webcam": "ok"}
    assert partial.domains[2].counts == (5, 9)


def test_where_nothing_is_there_classes_are_not_asked_for(tmp_path):
    report = check("domainnet", root=str(tmp_path))
    assert set(statuses(report).values()) == {"missing"}
    assert (report.ok, report.classes) == (False, ())
    assert "sketch" in shown(report)


def test_named_domains_only(root):
    overrides = ["data.sources=[amazon, dslr]"]
    assert list(statuses(check("folder", overrides, str(root)))) == ["amazon", "dslr"]
    assert list(statuses(check("folder", [*overrides, "data.target=webcam"], str(root)))) == [
        *("amazon", "dslr", "webcam")
    ]
    assert list(statuses(check("folder", ["data.target=amazon"], str(root)))) == ["dslr", "webcam", "amazon"]
    every = check("folder", ["data.sources=[amazon, dslr, webcam]"], str(root))
    assert every.ok  # nothing is left to be a target, and a check needs none


def test_data_root_comes_before_the_key_and_the_environment(root, monkeypatch, tmp_path_factory):
    empty = tmp_path_factory.mktemp("empty")
    monkeypatch.setenv("FEDRF_DATA", str(empty))
    assert not check("folder").ok
    assert check("folder", [f"data.root={root}"]).ok
    assert check("folder", [f"data.root={empty}"], str(root)).ok


def test_a_domain_without_labels(root):
    for path in (root / "webcam").rglob("*.png"):
        path.rename(root / "webcam" / f"{path.parent.name}-{path.name}")
    for name in ("mug", "pen"):
        (root / "webcam" / name).rmdir()
    report = check("folder", root=str(root))
    assert report.ok
    assert (report.domains[2].samples, report.domains[2].counts) == (15, None)
    assert "no labels" in shown(report)
    assert "webcam    ?    ?     15" in shown(report)
    split = check("folder", ["data.partition=even", "data.clients=2"], str(root))
    assert split.clients[-1] == ClientShare("webcam", 15, None)
    with pytest.raises(ValueError, match=r"data\.partition=even needs labels, and webcam has none"):
        check("folder", ["data.partition=even", "data.target=amazon"], str(root))


@pytest.mark.parametrize("kind", PARTITIONERS)
@pytest.mark.parametrize("more", [[], ["data.sources=[amazon, webcam]", "data.target=webcam"]])
def test_clients_hold_what_they_hold_in_a_run(root, kind, more):
    more = more or ["data.target=dslr"]
    overrides = [f"data.partition={kind}", "data.clients=3", "data.concentration=2", "seed=5", *more]
    report = check("folder", overrides, str(root))
    config = load_config(None, ["data.name=folder", f"data.root={root}", *overrides])
    sources, target = clients_of(config)
    assert [one.name for one in report.clients] == [*sources, target]
    for one in report.clients:
        labels = load_samples(config, one.name).labels
        assert (one.samples, one.counts) == (len(labels), tuple(np.bincount(labels, minlength=2)))


def test_seeds_split_differently(root):
    def split(seed):
        return check("folder", ["data.partition=dirichlet", "data.clients=2", f"seed={seed}"], str(root)).clients

    assert split(0) == split(0) != split(1)


def test_a_target_stands_in_where_none_is_named(root):
    split = ["data.partition=even", "data.clients=2"]
    report = check("folder", split, str(root))
    assert [one.name for one in report.clients] == ["amazon:1", "amazon:2", "dslr:1", "dslr:2", "webcam"]
    assert "the target is webcam, as an example" in shown(report)
    report = check("folder", [*split, "data.sources=[webcam]"], str(root))
    assert [one.name for one in report.clients] == ["webcam:1", "webcam:2", "dslr"]
    report = check("digits", [*split, "data.samples=20"])
    assert report.clients[-1].name == "handwritten"
    assert "example" not in shown(report)


def test_clients_of_a_missing_domain_are_left_out(small_office):
    (small_office / "dslr").rename(small_office / "elsewhere")
    report = check("office31", ["data.partition=even", "data.clients=2", "data.target=webcam"], str(small_office))
    assert not report.ok
    assert [one.name for one in report.clients] == ["amazon:1", "amazon:2", "webcam"]


def test_decoding_finds_corrupt_images(root):
    spoiled = root / "dslr/pen/03.png"
    spoiled.write_bytes(spoiled.read_bytes()[:20])
    assert check("folder", root=str(root)).ok
    report = check("folder", root=str(root), decode=True)
    assert statuses(report) == {"amazon": "ok", "dslr": "corrupt", "webcam": "ok"}
    assert not report.ok
    (complaint,) = report.domains[1].corrupt
    assert complaint.startswith(f"{spoiled}: cannot be decoded")
    assert complaint in shown(report)
    skipping = check("folder", ["data.skip_corrupt=true"], str(root), decode=True)
    assert skipping.ok
    assert (skipping.domains[1].samples, skipping.domains[1].skipped) == (11, 1)
    assert "11, 1 skipped" in shown(skipping)


def test_many_corrupt_images_are_counted():
    corrupt = tuple(f"{index}.png" for index in range(25))
    text = shown(Report("folder", "/data", ("a", "b"), (DomainCheck("attic", "corrupt", corrupt=corrupt),)))
    assert "19.png" in text
    assert "20.png" not in text
    assert "5 more in attic" in text


def test_the_digits_need_no_root_and_no_decoding():
    report = check("digits", ["data.samples=20"], decode=True)
    assert (report.ok, report.root, len(report.domains), len(report.classes)) == (True, None, 4, 10)
    assert "needs no files" in shown(report)


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("moon", [], r"data\.name='moon'.*'digits', 'digit-five', 'office31'"),
        (
            "digits",
            ["train.rounds=3"],
            r"'train\.rounds' is no key of a check; allowed: seed, data\.root, .*data\.shards",
        ),
        ("digits", ["data.name=folder"], r"'data\.name' is no key of a check"),
        ("digits", ["data.partitions=even"], r"'data\.partitions' is no key"),
        ("digits", ["data.partition=halves"], r"data\.partition='halves'"),
        ("digits", ["data.clients=4"], "clients=4 needs a data.partition"),
        ("digits", ["data.target=moon"], r"data\.target='moon': the domains of digits are handwritten"),
        ("digits", ["data.sources=[moon]"], r"data\.sources='moon': the domains of digits are handwritten"),
        ("digits", ["data.samples=20", "data.partition=even", "data.clients=11"], r"data\.clients: 20 samples are too"),
        ("office31", [], r"needs a data root: set data\.root or \$FEDRF_DATA"),
        ("folder", [], r"needs a data root: set data\.root or \$FEDRF_DATA"),
        ("office31", ["data.root=/nowhere"], "data.root=/nowhere: no such folder"),
    ],
)
def test_slips_are_one_line(name, overrides, message):
    with pytest.raises(ValueError, match=message) as raised:
        check(name, overrides)
    assert "\n" not in str(raised.value)


def report_of(clients, classes):
    counts = tuple(range(classes))
    shares = tuple(ClientShare(f"domain [{index}]:{index}", sum(counts), counts) for index in range(clients))
    names = tuple(f"quite_a_long_class_{index}" for index in range(classes))
    return Report(
        "folder", "/data", names, (DomainCheck("domain [0]", "ok", samples=9, counts=counts),), clients=shares
    )


@pytest.mark.parametrize(("clients", "classes"), [(3, 3), (3, 12), (40, 3), (3, 65), (30, 65)])
def test_tables_fit_in_a_line_and_show_everything(clients, classes):
    text = shown(report_of(clients, classes))
    assert max(map(len, text.splitlines())) <= 120
    assert "…" not in text
    for index in range(clients):
        assert f"domain [{index}]:{index}" in text
    lines = [line for line in text.splitlines() if f"quite_a_long_class_{classes - 1} " in line]
    if (clients, classes) == (30, 65):
        assert len(lines) > 1  # as many clients to a table as there is room for
        assert sum(line.split().count("64") for line in lines) == 30
    else:
        assert len(lines) == 1


def test_long_paths_are_shown_whole():
    where = f"/data/{'deep/' * 40}end"
    text = shown(Report("folder", "/data", ("a", "b"), (DomainCheck("attic", "ok", (60_000, 59_001), where),)))
    assert where in "".join(line[line.rfind(" ", 0, len(line.rstrip())) + 1 :].strip() for line in text.splitlines())


def test_few_classes_are_columns_and_many_are_rows():
    few, many = (shown(report_of(2, number)).splitlines() for number in (3, 13))
    assert any("quite_a_long_class_0  quite_a_long_class_1" in line for line in few)
    assert any("domain [0]:0  domain [1]:1" in line for line in many)


def test_reports_are_json(root):
    report = check("folder", ["data.partition=even", "data.clients=2"], str(root), decode=True)
    plain = json.loads(json.dumps(report.as_json()))
    assert plain["ok"] is True
    assert plain["domains"][0]["counts"] == [6, 12]
    assert [client["name"] for client in plain["clients"]][-1] == "webcam"


WITHOUT_TORCH = """
import sys
from fedrf.cli.app import main
sys.argv = ["fedrf", "data", *sys.argv[1:]]
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
print(sorted({"torch", "ray", "lightning", "torchvision"} & set(sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize(
    "arguments", [["list"], ["check", "folder", "--decode"], ["check", "office31", "data.allow_partial=true"]]
)
def test_the_driver_stays_free_of_torch(root, arguments):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *arguments, "--data-root", str(root)], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "[]\n")
    assert "amazon" in done.stdout


@pytest.mark.realdata
def test_real_data_is_complete(data_root):
    decaf6 = ["data.sources=[dslr]", "data.target=webcam"]
    for name, overrides in (("office31", []), ("office-caltech10-surf", []), ("office-caltech10-decaf6", decaf6)):
        assert check(name, overrides, str(data_root)).ok


def test_features_that_do_not_fit_together_are_a_problem(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.eye(4), y=np.arange(4) % 2)
    np.savez(tmp_path / "b.npz", X=np.ones((4, 3)))
    report = check("features", ["data.target=b"], str(tmp_path))
    assert [one.status for one in report.domains] == ["ok", "ok"]
    assert not report.ok
    assert "the same number of columns; found 4 in" in shown(report)
    np.savez(tmp_path / "b.npz", X=np.ones((4, 4)))
    assert check("features", [], str(tmp_path)).ok  # no labels in b: a target, perhaps
