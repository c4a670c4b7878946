"""The numbers in published.yaml are those of the paper's LaTeX source, and they agree with each other."""

import math
import os
import re
from decimal import Decimal
from functools import cache
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PUBLISHED = Path(os.environ.get("FEDRF_PUBLISHED", ROOT / "fedrf/paper/published.yaml"))
PAPER = Path(os.environ.get("FEDRF_PAPER", ROOT.parent / "shared/paper/fedrf-tca.tex"))
ENTRIES = yaml.safe_load(PUBLISHED.read_text(encoding="utf-8"))
TABLES = [(name, table) for name, entry in ENTRIES.items() for table in entry["tables"]]

# The label of each table of the paper, and whether its rows are columns here.
LATEX_TABLES = {
    ("fig3-office-caltech", "accuracy"): ("PerfomanceOffice10", True),
    ("fig3-office-caltech", "seconds"): ("TimeOffice10", True),
    ("fig3-office31", "accuracy"): ("PerfomanceOffice31", True),
    ("fig3-office31", "seconds"): ("TimeOffice31", True),
    ("table1-communication", "complexity"): ("tab:comm_pro", False),
    ("table2-message-size", "numbers"): ("tab:transfer number", False),
    ("table3-drops", "accuracy"): ("DigitFive_Ablation", False),
    ("table4-office31", "accuracy"): ("fig:PerfomanceOffice31", False),
    ("table5-office-caltech", "accuracy"): ("Office_10_Fedrated", False),
    ("table6-digit-five", "accuracy"): ("DigitFive", False),
    ("table7-visda", "accuracy"): ("Visda_C", False),
    ("table8-ablation-digits", "accuracy"): ("tab:ablation_DigitFive", False),
    ("table9-ablation-office", "accuracy"): ("tab:ablation_officecaltech", False),
    ("kernels-office-caltech", "accuracy"): ("performance_kernel_Office10", False),
    ("kernels-office31", "accuracy"): ("performance_kernel_Office31", False),
    ("voting-office-caltech", "accuracy"): ("Hard_Voting_Office_10_Fedrated", False),
    ("voting-digit-five", "accuracy"): ("Hard_Voting_DigitFive", False),
    ("orders-digit-five", "accuracy"): ("DigitFive_Asynchrony_Ablation", False),
}
FIGURE3 = {"fig3-office-caltech": "fig:office10", "fig3-office31": "fig:office31"}
INTERVALS = {"fig4-interval": "fig:FedRF-TCA_frequency", "fig7-one-shot": "fig:FedRF-TCA_frequency_one_shot"}
GAMMA = {"TCA": "fig:Vanilla_TCA__Amazon_Webcam", "R-TCA": "fig:R_TCA_Amazon_Webcam"}
PLOTS = [
    *((name, "figure") for name in FIGURE3),
    *((name, "accuracy") for name in INTERVALS),
    *(("fig6-gamma", table) for table in GAMMA),
    ("fig5-heterogeneity", "accuracy"),
]

# Rows and columns that have another name here than in the paper.
RENAMED = {
    "Average": "Avg",
    "FedRF-TCA (N=1000)": "FedRF-TCA",
    "FedRF-TCA (ours)": "FedRF-TCA",
    "ResNet": "FedAvg",
    "ResNet + RF-TCA Module": "FedAvg + RF-TCA module",
    "Source Only": "Source only",
}
# Misprints: the printed cell and the number that is meant, by label, row and column of the paper.
MISPRINTS = {("PerfomanceOffice10", "A→D", "GFK"): ("0.8535", 85.35)}
# Averages of the paper that are not the mean of their row.
WRONG_AVERAGES = {
    ("fig3-office-caltech", "accuracy", "DaNN"),
    ("fig3-office-caltech", "seconds", "DaNN"),
    ("table5-office-caltech", "accuracy", "AdaBN"),
    ("voting-office-caltech", "accuracy", "AdaBN"),
}


@cache
def paper():
    if not PAPER.is_file():
        pytest.skip(f"The LaTeX source of the paper is not at {PAPER}; set FEDRF_PAPER to its path")
    return re.sub(r"(?<!\\)%.*", "", PAPER.read_text(encoding="utf-8"))


def published(name, table):
    return ENTRIES[name]["tables"][table]


# Reading the LaTeX


def environment(label):
    """Return the source of the table or figure that has a label, and where the label is in it."""
    tex = paper()
    assert tex.count(rf"\label{{{label}}}") == 1
    at = tex.index(rf"\label{{{label}}}")
    begin = list(re.finditer(r"\\begin\{((?:table|figure)\*?)\}", tex[:at]))[-1]
    end = tex.index(rf"\end{{{begin[1]}}}", begin.end())
    assert at < end
    return tex[begin.start() : end], at - begin.start()


def caption(label):
    body = environment(label)[0]
    return body[body.rindex(r"\caption") :]


def without_command(text, command, keep):
    r"""Replace ``\command[..]{a}{b}`` by the argument with index `keep`, or by nothing if that is None."""
    while found := re.search(rf"\\{command}(?![a-zA-Z])\s*(?:\[[^\]]*\])?", text):
        end, arguments = found.end(), []
        while end < len(text) and text[end] == "{":
            depth, start = 1, end + 1
            while depth:
                end += 1
                depth += {"{": 1, "}": -1}.get(text[end], 0)
            arguments.append(text[start:end])
            end += 1
        text = text[: found.start()] + ("" if keep is None else arguments[keep]) + text[end:]
    return text


def plain(text):
    """Return what LaTeX prints for a cell of a table, with the names of rows and columns that are used here."""
    for command in ("cite", "footnotemark", "hline", "toprule", "midrule", "bottomrule"):
        text = without_command(text, command, None)
    text = re.sub(r"\\uppercase\\expandafter\{\\romannumeral(\d)\}", lambda m: roman(int(m[1])), text)
    for command, keep in (("resizebox", 2), ("textbf", 0), ("underline", 0)):
        text = without_command(text, command, keep)
    text = re.sub(r"\\(rightarrow|to)\b", "→", text)
    text = text.replace(r"\XSolidBrush", "no").replace(r"\Checkmark", "yes").replace(r"\,", "")
    text = " ".join(text.replace("$", "").replace("~", " ").split())
    text = re.sub(r"\((?:with )?N = (\d+)\)", r"(N=\1)", text)  # RF-TCA (with N = 500)
    text = re.sub(r" ?(→|,) ?", r"\1", text)  # C, D, W → A
    return re.sub(r"^(\([A-Z]+\)) .*", r"\1", text)  # (A) all/all


def roman(number):
    numerals = {10: "X", 9: "IX", 5: "V", 4: "IV", 1: "I"}
    text = ""
    for value, numeral in numerals.items():
        text, number = text + numeral * (number // value), number % value
    return text


def cells(label):
    """Return the rows of a table, each a list of plain cells; the first row is the head."""
    body = environment(label)[0]
    begin = re.search(r"\\begin\{(tabularx?)\}", body)
    body = body[begin.end() : body.index(rf"\end{{{begin[1]}}}")]
    body = body[re.match(r"(\{\\linewidth\})?\{(?:[^{}]|\{[^{}]*\})*\}", body).end() :]  # columns
    body = re.sub(r"\\makecell\{([^{}]*)\}", lambda m: m[1].replace(r"\\", " "), body)
    rows = [[plain(cell) for cell in row.split("&")] for row in body.split(r"\\")]
    assert rows.pop() == [""]
    return rows


def axis(label):
    """Return the source of the plot that a label belongs to: the last one before it in its figure."""
    body, at = environment(label)
    begin = body.rindex(r"\begin{axis}", 0, at)
    return body[begin : body.index(r"\end{axis}", begin)]


def plots(label):
    """Return the options, points and name of each plot; points are (x, y, standard deviation or None) as printed."""
    source = axis(label)
    drawn = re.findall(
        r"\\addplot\s*\[([^\]]*)\]\s*coordinates\s*\{([^}]*)\}(?:\s*node\[[^\]]*\]\{([^}]*)\})?\s*;", source
    )
    assert len(drawn) == source.count(r"\addplot")
    found = []
    for options, coordinates, node in drawn:
        points = re.findall(r"\(([^,()]+),([^,()]+)\)(?:\s*\+-\s*\(0,([^()]+)\))?", coordinates)
        assert len(points) == len(re.findall(r"(?<!\+- )\(", coordinates))
        found.append((options, [(x.strip(), y.strip(), std.strip() or None) for x, y, std in points], node))
    return found


def numbers_of_caption(label, symbol):
    """Return the numbers of a set such as ``N \\in { 100, 1\\,000 }`` in a caption."""
    numbers = re.search(symbol + r" \\in \\\{([^}]*)\\\}", caption(label))[1]
    return [int(number) for number in numbers.replace(r"\,", "").split(",")]


def percent(fraction):
    return float(Decimal(fraction) * 100)


# The tables of the paper


@pytest.mark.parametrize(("name", "table"), LATEX_TABLES)
def test_table_is_that_of_the_paper(name, table):
    label, transposed = LATEX_TABLES[name, table]
    head, *body = cells(label)
    if name in ("table1-communication", "table2-message-size"):
        head = [text.lower() for text in head]
    elif name == "voting-digit-five":
        head = [re.sub(r".*(?=→)", "", text) for text in head]
    rows = {}
    for row, *values in body:
        assert len(values) == len(head) - 1
        rows[row] = []
        for column, value in zip(head[1:], values, strict=True):
            printed, meant = MISPRINTS.get((label, row, column), (value, None))
            assert value == printed
            is_number = re.fullmatch(r"\d+(\.\d+)?", value)
            assert is_number or name == "table1-communication"
            rows[row].append(meant or (float(value) if is_number else value))
    columns = [RENAMED.get(column, column) for column in head[1:]]
    rows = {RENAMED.get(row, row): values for row, values in rows.items()}
    if transposed:
        columns, rows = list(rows), dict(zip(columns, map(list, zip(*rows.values(), strict=True)), strict=True))
    assert published(name, table)["columns"] == columns
    assert list(published(name, table)["rows"].items()) == list(rows.items())


def test_misprints_are_noted():
    for (label, _, _), (printed, meant) in MISPRINTS.items():
        name = next(name for (name, _), (other, _) in LATEX_TABLES.items() if other == label)
        assert any(printed in note and str(meant) in note for note in ENTRIES[name]["notes"])


# The figures of the paper


@pytest.mark.parametrize(("name", "label"), FIGURE3.items())
def test_figure_3(name, label):
    circles = [points for options, points, _ in plots(label) if "mark=o" in options]
    dots = [(node, points) for options, points, node in plots(label) if "mark=*" in options and node]
    names = [f"RF-TCA (N={n})" for n in numbers_of_caption("fig:rf-tca", "N")]
    assert len(circles) == 1
    named = [*zip(names, circles[0], strict=False), *((node, point) for node, [point] in dots)]
    rows = [(row, [percent(y), float(f"{10 ** float(x):.3g}")]) for row, (x, y, _) in named]
    assert published(name, "figure")["columns"] == ["accuracy", "seconds"]
    assert list(published(name, "figure")["rows"].items()) == rows
    assert len(circles[0]) <= len(names)
    if len(circles[0]) < len(names):
        assert any("circles" in note for note in ENTRIES[name]["notes"])


@pytest.mark.parametrize(("name", "label"), INTERVALS.items())
def test_figures_of_communication_intervals(name, label):
    intervals = numbers_of_caption(label, r"T_\{C\}")
    names = re.findall(r"\\addlegendentry\{([^}]*)\}", axis(label))
    rows = {}
    for legend, (_, points, _) in zip(names, plots(label), strict=True):
        method, _, task = legend.rpartition(": ")
        row = f"{method or 'FedRF-TCA'} {task[task.index('→') :]}"
        rows[row] = dict.fromkeys(intervals)
        for x, y, std in points:
            interval = min(intervals, key=lambda t: abs(math.log(t) - float(x)))
            if abs(math.log(interval) - float(x)) > 0.05:
                point = f"T_C = {math.exp(float(x)):.0f} (x = {x}): {percent(y)} with standard deviation {percent(std)}"
                assert any(point in note for note in ENTRIES[name]["notes"])
                continue
            assert rows[row][interval] is None
            rows[row][interval] = [percent(y), percent(std)]
    assert published(name, "accuracy")["columns"] == [str(interval) for interval in intervals]
    expected = [(row, list(values.values())) for row, values in rows.items()]
    assert list(published(name, "accuracy")["rows"].items()) == expected


def test_figure_of_heterogeneity():
    label = "fig:data_heterogeneity"
    legend = re.search(r"\\legend\{([^}]*)\}", axis(label))[1].replace(r"$\bSigma \bell$", "Σℓ")
    columns = re.search(r"symbolic x coords=\{([^}]*)\}", axis(label))[1].split(", ")
    rows = []
    for row, (_, points, _) in zip(legend.split(", "), plots(label), strict=True):
        assert [x for x, _, _ in points] == columns
        rows.append((row, [float(y) for _, y, _ in points]))
    assert published("fig5-heterogeneity", "accuracy")["columns"] == columns
    assert list(published("fig5-heterogeneity", "accuracy")["rows"].items()) == rows


@pytest.mark.parametrize(("table", "label"), GAMMA.items())
def test_figure_of_gamma(table, label):
    [(_, points, _)] = plots(label)
    points = dict.fromkeys((f"{float(x):.2f}", round(100 * float(y), 2)) for x, y, _ in points)  # without duplicates
    assert published("fig6-gamma", table)["columns"] == [x for x, _ in points]
    assert published("fig6-gamma", table)["rows"] == {"accuracy": [y for _, y in points]}
    low, high = re.search(r"\(axis cs:([^,]+),[^)]*\) rectangle \(axis cs:([^,]+),", axis(label)).groups()
    assert ENTRIES["fig6-gamma"]["informative"][table] == [float(low), float(high)]


def test_caption_of_gamma_is_noted():
    found = re.findall(r"= 10\^\{([-.\d]+)\} = ([.\d]+\d)", caption("fig:results_rankone_Amazon_Webcam"))
    assert len(found) == 2
    for exponent, value in found:
        assert any(f"= 10^{exponent} = {value}" in note for note in ENTRIES["fig6-gamma"]["notes"])


def test_places():
    places = [place for entry in ENTRIES.values() for place in entry["place"].split("; ")]
    labels = {kind: [] for kind in ("Table", "Figure")}
    for kind in labels:
        for body in re.findall(rf"\\begin\{{{kind.lower()}\*?\}}(.*?)\\end\{{{kind.lower()}\*?\}}", paper(), re.DOTALL):
            labels[kind].append(re.findall(r"\\label\{([^}]*)\}", body))
    form = r"(?:(Table) ([IVX]+)|(Figure) (\d+)[a-z ]*|appendix, (Table)), label ([^,]+)(,|$)"
    for place in places:
        if found := re.match(form, place):
            kind = found[1] or found[3] or found[5]
            number = next(i for i, names in enumerate(labels[kind], start=1) if found[6] in names)
            assert (found[2] or found[4]) in (None, roman(number), str(number))
        else:
            assert place in ENTRIES["theorem1"]["place"]
    used = {label for label, _ in LATEX_TABLES.values()} | {*FIGURE3.values(), *INTERVALS.values()}
    assert all(any(f"label {label}" in place for place in places) for label in used)
    with_numbers = [names for names in labels["Table"] if names]
    assert len(with_numbers) == len(LATEX_TABLES)  # every table of the paper is here


# Without the LaTeX


def test_every_table_is_compared():
    assert sorted(TABLES) == sorted([*LATEX_TABLES, *PLOTS])


@pytest.mark.parametrize("name", ENTRIES)
def test_entry_is_complete(name):
    entry = ENTRIES[name]
    assert set(entry) - {"notes", "informative"} == {"place", "setting", "tables"}
    assert entry["place"]
    assert entry["setting"].endswith(".")
    assert all(isinstance(note, str) and note.endswith((".", "...")) for note in entry.get("notes", []))


@pytest.mark.parametrize(("name", "table"), TABLES)
def test_rows_have_a_value_for_each_column(name, table):
    content = published(name, table)
    assert list(content) == ["unit", "columns", "rows"]
    assert len(set(content["columns"])) == len(content["columns"])
    assert all(isinstance(text, str) for text in [content["unit"], *content["columns"], *content["rows"]])
    for values in content["rows"].values():
        assert len(values) == len(content["columns"])
        for value in values:
            parts = value if isinstance(value, list) else [value]
            assert len(parts) == (2 if isinstance(value, list) else 1)
            kinds = str if content["unit"] == "text" else (int, float, type(None))
            assert all(isinstance(part, kinds) for part in parts)
            if content["unit"] == "%" and value is not None:
                assert 1 < parts[0] <= 100  # a fraction would be below 1


def test_averages():
    wrong = set()
    for name, table in TABLES:
        content = published(name, table)
        if "Avg" not in content["columns"]:
            continue
        assert content["columns"][-1] == "Avg"
        for row, (*values, average) in content["rows"].items():
            # Times are printed with four digits, accuracies with one or two decimals.
            tolerance = 0.001 * average if content["unit"] == "s" else 0.15
            if abs(sum(values) / len(values) - average) > tolerance:
                wrong.add((name, table, row))
    assert wrong == WRONG_AVERAGES


@pytest.mark.parametrize(("name", "table", "row"), sorted(WRONG_AVERAGES))
def test_wrong_averages_are_noted(name, table, row):
    average = published(name, table)["rows"][row][-1]
    assert any(f"Avg of {row} is printed as {average}" in note for note in ENTRIES[name]["notes"])


def test_sizes_of_messages_add_up():
    for features, parameters, total in published("table2-message-size", "numbers")["rows"].values():
        assert features + parameters == pytest.approx(total)
