import csv

import numpy as np
import torch

from fedrf.federation.predictions import write_predictions


def test_a_line_for_each_sample_whatever_it_is_called(tmp_path):
    names = ["plain.jpg", 'with, "signs".jpg', b"caf\xe9.jpg".decode(errors="surrogateescape")]
    probabilities = torch.tensor([[0.9, 0.1], [0.25, 0.75], [0.5001, 0.4999]])
    write_predictions(tmp_path / "predictions.csv", np.arange(3), names, ("cat", "dog"), probabilities)
    with (tmp_path / "predictions.csv").open(errors="surrogateescape", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["sample"] for row in rows] == names
    assert [row["predicted"] for row in rows] == ["cat", "dog", "cat"]
    assert [row["confidence"] for row in rows] == ["0.9000", "0.7500", "0.5001"]
    assert b"caf\xe9.jpg" in (tmp_path / "predictions.csv").read_bytes()


def test_lines_have_the_order_of_the_data_set(tmp_path):
    probabilities = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    write_predictions(tmp_path / "predictions.csv", np.array([7, 2, 5]), "hcf", ("cat", "dog"), probabilities)
    lines = (tmp_path / "predictions.csv").read_text().splitlines()[1:]
    assert lines == ["c,dog,0.8000", "f,cat,0.6000", "h,cat,0.9000"]
