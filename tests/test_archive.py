"""Archives: what goes in comes out, damage is noticed, and nothing that is read runs code."""

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
import torch
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load, save

from fedrf.archive import DamagedError, pack, unpack


@dataclass
class Point:
    x: float
    values: np.ndarray


class Pair(NamedTuple):
    first: int
    second: str


ARRAYS = hnp.arrays(
    st.sampled_from(["float32", "float64", "int8", "int16", "int64", "uint8", "bool"]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5)
KEYS = st.text(max_size=3) | st.integers() | st.tuples(st.text(max_size=2), st.integers())
VALUES = st.recursive(
    PLAIN | ARRAYS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=3)
        | st.builds(Point, st.floats(), ARRAYS)
    ),
    max_leaves=8,
)


def equal(a, b):
    """Compare two values, arrays by their bits."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    if isinstance(a, float):
        return np.float64(a).tobytes() == np.float64(b).tobytes() or a != a != b
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, Point):
        return equal(a.x, b.x) and equal(a.values, b.values)
    return a == b


@settings(max_examples=150, deadline=None)
@given(VALUES)
def test_what_is_packed_is_unpacked(value):
    assert equal(unpack(pack(value, (Point,)), (Point,)), value)


@given(st.lists(ARRAYS, min_size=1, max_size=4))
def test_the_bytes_are_a_safetensors_file(arrays):
    stored = load(pack(arrays))
    assert all(equal(stored[str(number)], array) for number, array in enumerate(arrays))


def test_other_containers_types_and_tensors():
    value = {"counter": Counter({("up", "x"): 3}), "set": {"b", "a"}, "pair": Pair(1, "x"), "tensor": torch.arange(3)}
    restored = unpack(pack(value, (Pair,)), (Pair,))
    assert torch.equal(restored.pop("tensor"), value.pop("tensor"))
    assert restored == value
    assert type(restored["counter"]) is Counter


def test_an_array_that_occurs_twice_is_stored_once_and_shared_again():
    values = np.ones(1000, np.float32)
    content = pack([values, {"again": values}])
    assert len(content) < 5000
    first, second = unpack(content)
    assert first is second["again"]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_every_damage_is_noticed(data):
    content = bytearray(pack({"a": np.arange(6, dtype=np.float32), "b": [1, "text"]}))
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    else:
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        restored = unpack(bytes(content))
    except DamagedError:
        return
    # A bit of white space in the header that pads it may change.
    np.testing.assert_array_equal(restored["a"], np.arange(6))
    assert restored["b"] == [1, "text"]


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_no_archive(content):
    with pytest.raises(DamagedError):
        unpack(content)


def crafted(structure):
    """Return an archive with a structure of one's own and the digest that belongs to it."""
    digest = xxhash.xxh3_128(structure.encode()).hexdigest()
    return save({}, {"structure": structure, "digest": digest})


@pytest.mark.parametrize(
    "structure",
    [
        '{"$type": "Point", "fields": {}}',
        '{"$type": "system", "fields": {"command": "ls"}}',
        '{"$array": 7}',
        '{"$tensor": 7}',
        '{"$dict": [1]}',
        '{"$dict": [[{"$dict": []}, 1]]}',
        '{"$set": [[1]]}',
        '{"$import": "os"}',
        "[" * 100 + "]" * 100,
        "[" * 100_000,
        "nonsense",
    ],
)
def test_structures_of_others_are_refused(structure):
    with pytest.raises(DamagedError):
        unpack(crafted(structure))


def test_what_cannot_be_stored_is_an_error():
    with pytest.raises(TypeError, match="cannot store Pair"):
        pack(Pair(1, "x"))
    with pytest.raises(TypeError, match="cannot store function"):
        pack({"a": equal})
