import itertools
import random

import pyarrow as pa
import pytest

import phalanx
from phalanx.transaction.places import emptied_namespaces, place_of

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.int64())])


@pytest.fixture(scope="module")
def leaves(tmp_path_factory):
    table = phalanx.create(tmp_path_factory.mktemp("places") / "t", SCHEMA, ["a", "b", "c"])
    values = list(itertools.product([None, 1, 2], [None, "", "x"], [1, 2]))
    table.append([{"a": a, "b": b, "c": c} for a, b, c in values[:-3]])
    return table._snapshot.leaves


@pytest.mark.parametrize("seed", range(20))
def test_namespaces_go_with_their_last_leaf(leaves, seed):
    places = [place_of(leaves.specs[1], leaves.row(index)) for index in range(len(leaves))]
    gone = random.Random(seed).sample(places, seed % len(places))
    left = {id for place in places if place not in gone for id in place.namespaces}
    wanted = {id for place in gone for id in place.namespaces} - left
    assert emptied_namespaces(leaves, gone) == wanted


def test_all_of_them(leaves):
    places = [place_of(leaves.specs[1], leaves.row(index)) for index in range(len(leaves))]
    everything = {id for place in places for id in place.namespaces}
    assert emptied_namespaces(leaves, places) == everything
    assert emptied_namespaces(leaves, []) == set()
