"""`fedrf data list` and `fedrf data check`."""

import json
import subprocess
import sys
from io import StringIO

import pytest
from rich.console import Console

from fedrf.cli.data_tables import print_availability, print_report
from fedrf.config.registry import DATASETS
from fedrf.data.availability import find_datasets
from fedrf.data.check import ClientShare, DataReport, DomainCheck, check_dataset
from tests.cli.calls import run_process
from tests.cli.small_folders import SIZES, statuses

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


pytestmark = pytest.mark.usefixtures("no_root")


def shown(report, width=120):
    console = Console(file=StringIO(), width=width)
    print_report(report, console)
    return console.file.getvalue()


def test_every_data_set_is_listed_with_the_domains_that_are_there(small_office):
    (small_office / "dslr").rename(small_office / "elsewhere")
    found = {dataset.name: dataset for dataset in find_datasets(small_office)}
    assert list(found) == DATASETS.names()
    assert found["office31"].found == {name: str(small_office / name) for name in ("amazon", "webcam")}
    assert list(found["office31"].missing) == ["dslr"]
    assert str(small_office / "dslr") in found["office31"].missing["dslr"]
    assert set(found["digits"].found.values()) == {None}
    for name in ("folder", "features"):
        assert found[name].domains == ()
    console = Console(file=StringIO(), width=250)
    print_availability(list(found.values()), small_office, console)
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


def test_without_a_root_all_but_generated_domains_are_missing():
    for dataset in find_datasets():
        drawn = {"digits": dataset.domains, "digit-four": ("rendered",)}
        assert tuple(dataset.found) == tuple(drawn.get(dataset.name, ()))
        assert all("$FEDRF_DATA" in reason for reason in dataset.missing.values())


def test_a_complete_data_set_is_ok(small_office):
    report = check_dataset("office31", root=str(small_office))
    assert (report.ok, report.classes, report.clients) == (True, ("mug", "pen"), ())
    for domain, (name, size) in zip(report.domains, SIZES.items(), strict=True):
        assert (domain.name, domain.samples, domain.expected) == (name, 3 * size, (3 * size,))
        assert domain.counts == (size, 2 * size)
        assert domain.where == str(small_office / name)
    assert "amazon  ok           18        18   2 of 2" in shown(report)
    assert "amazon    6   12     18" in shown(report)


def test_other_domains_are_shown_if_some_are_missing_or_wrong(small_office):
    (small_office / "dslr").rename(small_office / "elsewhere")
    next((small_office / "webcam/pen").iterdir()).unlink()
    report = check_dataset("office31", root=str(small_office))
    assert not report.ok
    assert statuses(report) == {"amazon": "ok", "dslr": "missing", "webcam": "wrong"}
    text = " ".join(shown(report, 500).split())
    assert f"domain dslr not found; looked for {small_office}/dslr" in text
    assert "14 samples of office31, domain webcam; expected 15" in text
    partial = check_dataset("office31", ["data.allow_partial=true"], str(small_office))
    assert statuses(partial) == {"amazon": "ok", "dslr": "missing", "webcam": "ok"}
    assert partial.domains[2].counts == (5, 9)


def test_classes_are_not_read_if_no_domain_is_there(tmp_path):
    report = check_dataset("domainnet", root=str(tmp_path))
    assert set(statuses(report).values()) == {"missing"}
    assert (report.ok, report.classes) == (False, ())
    assert "sketch" in shown(report)


def test_a_domain_without_labels(root):
    for path in (root / "webcam").rglob("*.png"):
        path.rename(root / "webcam" / f"{path.parent.name}-{path.name}")
    for name in ("mug", "pen"):
        (root / "webcam" / name).rmdir()
    report = check_dataset("folder", root=str(root))
    assert report.ok
    assert (report.domains[2].samples, report.domains[2].counts) == (15, None)
    assert "no labels" in shown(report)
    assert "webcam    ?    ?     15" in shown(report)
    split = check_dataset("folder", ["data.partition=even", "data.clients=2"], str(root))
    assert split.clients[-1] == ClientShare("webcam", 15, None)
    with pytest.raises(ValueError, match=r"data\.partition=even needs labels, and webcam has none"):
        check_dataset("folder", ["data.partition=even", "data.target=amazon"], str(root))


def test_a_target_is_assumed_if_none_is_named(root):
    split = ["data.partition=even", "data.clients=2"]
    report = check_dataset("folder", split, str(root))
    assert [client.name for client in report.clients] == ["amazon:1", "amazon:2", "dslr:1", "dslr:2", "webcam"]
    assert "the target is webcam, as an example" in shown(report)
    report = check_dataset("folder", [*split, "data.sources=[webcam]"], str(root))
    assert [client.name for client in report.clients] == ["webcam:1", "webcam:2", "dslr"]
    report = check_dataset("digits", [*split, "data.samples=20"])
    assert report.clients[-1].name == "handwritten"
    assert "example" not in shown(report)


def test_decoding_finds_corrupt_images(root):
    spoiled = root / "dslr/pen/03.png"
    spoiled.write_bytes(spoiled.read_bytes()[:20])
    assert check_dataset("folder", root=str(root)).ok
    report = check_dataset("folder", root=str(root), decode=True)
    assert statuses(report) == {"amazon": "ok", "dslr": "corrupt", "webcam": "ok"}
    assert not report.ok
    (complaint,) = report.domains[1].corrupt
    assert complaint.startswith(f"{spoiled}: cannot be decoded")
    assert complaint in shown(report)
    skipping = check_dataset("folder", ["data.skip_corrupt=true"], str(root), decode=True)
    assert skipping.ok
    assert (skipping.domains[1].samples, skipping.domains[1].skipped) == (11, 1)
    assert "11, 1 skipped" in shown(skipping)


def test_many_corrupt_images_are_counted():
    corrupt = tuple(f"{index}.png" for index in range(25))
    text = shown(DataReport("folder", "/data", ("a", "b"), (DomainCheck("attic", "corrupt", corrupt=corrupt),)))
    assert "19.png" in text
    assert "20.png" not in text
    assert "5 more in attic" in text


def test_the_digits_need_no_root_and_no_decoding():
    report = check_dataset("digits", ["data.samples=20"], decode=True)
    assert (report.ok, report.root, len(report.domains), len(report.classes)) == (True, None, 4, 10)
    assert "needs no files" in shown(report)


def report_of(clients, classes):
    counts = tuple(range(classes))
    shares = tuple(ClientShare(f"domain [{index}]:{index}", sum(counts), counts) for index in range(clients))
    names = tuple(f"quite_a_long_class_{index}" for index in range(classes))
    return DataReport(
        "folder", "/data", names, (DomainCheck("domain [0]", "ok", samples=9, counts=counts),), clients=shares
    )


def test_a_problem_of_all_domains_is_printed():
    assert "columns differ" in shown(DataReport("features", "/data", (), (DomainCheck("a", "ok"),), "columns differ"))


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


def test_long_paths_are_not_cut():
    where = f"/data/{'deep/' * 40}end"
    text = shown(DataReport("folder", "/data", ("a", "b"), (DomainCheck("attic", "ok", (60_000, 59_001), where),)))
    assert where in "".join(line[line.rfind(" ", 0, len(line.rstrip())) + 1 :].strip() for line in text.splitlines())


def test_few_classes_are_columns_and_many_are_rows():
    few, many = (shown(report_of(2, number)).splitlines() for number in (3, 13))
    assert any("quite_a_long_class_0  quite_a_long_class_1" in line for line in few)
    assert any("domain [0]:0  domain [1]:1" in line for line in many)


@pytest.mark.parametrize(
    "arguments", [["list"], ["check", "folder", "--decode"], ["check", "office31", "data.allow_partial=true"]]
)
def test_the_commands_import_no_torch(root, arguments):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *arguments, "--data-root", str(root)], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "[]\n")
    assert "amazon" in done.stdout


def test_data_check_prints_one_json_object(files):
    split = ("data.sources=[plain, left]", "data.target=unlabelled", "data.partition=shards", "data.clients=5")
    done = run_process("data", "check", "features", *split, "--data-root", files, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert [domain["samples"] for domain in report["domains"]] == [599, 599, 599]
    assert [client["name"] for client in report["clients"]][-2:] == ["left:5", "unlabelled"]
    assert sum(client["samples"] for client in report["clients"][:5]) == 599


def test_data_check_fails_if_a_domain_is_missing(tmp_path):
    (tmp_path / "office31/amazon").mkdir(parents=True)
    done = run_process("data", "check", "office31", "--data-root", tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    amazon, dslr = (line for line in done.stdout.splitlines() if line.startswith(("amazon", "dslr")))
    assert "wrong" in amazon
    assert "missing" in dslr


def test_data_list_shows_what_is_there(tmp_path):
    (tmp_path / "Office-31/amazon").mkdir(parents=True)
    done = run_process("data", "list", "--data-root", tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    listed = json.loads(done.stdout)
    assert listed["root"] == str(tmp_path)
    office = next(dataset for dataset in listed["datasets"] if dataset["name"] == "office31")
    assert office["found"] == {"amazon": str(tmp_path / "Office-31/amazon")}
    assert f"looked for {tmp_path}/Office-31/dslr" in office["missing"]["dslr"]
    assert "office-caltech10-decaf6" in run_process("data", "list", "--data-root", tmp_path).stdout
