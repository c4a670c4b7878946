import csv
import io

import numpy as np
import torch

from fedrf.federation.predictions import predictions_table


def test_a_line_for_each_sample_whatever_it_is_called():
    names = ["plain.jpg", 'with, "signs".jpg', b"caf\xe9.jpg".decode(errors="surrogateescape")]
    probabilities = torch.tensor([[0.9, 0.1], [0.25, 0.75], [0.5001, 0.4999]])
    table = predictions_table(np.arange(3), names, ("cat", "dog"), probabilities)
    rows = list(csv.DictReader(io.StringIO(table.decode(errors="surrogateescape"), newline="")))
    assert [row["sample"] for row in rows] == names
    assert [row["predicted"] for row in rows] == ["cat", "dog", "cat"]
    assert [row["confidence"] for row in rows] == ["0.9000", "0.7500", "0.5001"]
    assert b"caf\xe9.jpg" in table


def test_lines_have_the_order_of_the_data_set():
    probabilities = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    lines = predictions_table(np.array([7, 2, 5]), "hcf", ("cat", "dog"), probabilities).decode().splitlines()[1:]
    assert lines == ["c,dog,0.8000", "f,cat,0.6000", "h,cat,0.9000"]
