import math
import re

import pyarrow as pa
import pytest

from phalanx.model.domains import domain_of
from phalanx.storage.names import (
    encode,
    leaf_folder,
    leaf_id,
    namespace_names,
    object_id,
)

SALT = bytes(range(16))
TEXT = pa.string()


def key(value, type):
    return domain_of(type).key(pa.scalar(value, type))


def names(*values, salt=SALT, spec=1, known=()):
    return namespace_names(salt, spec, values, [TEXT] * len(values), known)


class TestNames:
    def test_sixteen_characters_of_base36(self):
        for value in ("", "a", "a/b$c=d", "😀", None):
            assert re.fullmatch("[0-9a-z]{16}", names(value)[0])

    def test_the_same_for_every_writer(self):
        assert names("2025", "US") == names("2025", "US")

    def test_pinned(self):
        """Two versions of Phalanx must arrive at the same names."""
        assert names("2025", "US", None) == PINNED

    def test_they_depend_on_salt_spec_and_path(self):
        (name,) = names("US")
        assert names("US", salt=bytes(16)) != [name]
        assert names("US", spec=2) != [name]
        assert names("2025", "US")[1] != names("2024", "US")[1]
        assert names("US", "US")[1] != name

    def test_no_two_values_share_one(self):
        values = [None, "", "0", "s", "NULL", "null", "a", "A", "a\0", "$", "a$b"]
        assert len({names(value)[0] for value in values}) == len(values)

    def test_known_names_are_kept(self):
        found = names("2025", "US", known=["k7m2n9p4q8r5s3t6"])
        assert found[0] == "k7m2n9p4q8r5s3t6"
        assert found[1] != names("2025", "US")[1]


PINNED = ["aw2x03bb5rlrbybp", "oyi0f6d2dy8cbww4", "oev3h0wt8z3twxye"]


class TestIds:
    def test_they_are_joined_by_dollars(self):
        assert object_id(2, []) == "v2"
        assert object_id(2, ["a", "b"]) == "v2$a$b"
        assert leaf_id(2, ["a", "b"]) == "v2$a$b$dataset"
        assert leaf_id(1, []) == "v1$dataset"

    def test_folders_have_a_hash_before_the_id(self):
        assert re.fullmatch(r"[0-9a-f]{8}_v1\$a\$dataset", leaf_folder(SALT, "v1$a$dataset"))
        assert leaf_folder(SALT, "v1$dataset") != leaf_folder(bytes(16), "v1$dataset")


class TestEncoding:
    """A value keeps its bytes when its column is promoted, so its partition keeps its name."""

    @pytest.mark.parametrize(
        ("value", "narrow", "wide"),
        [
            (5, pa.int8(), pa.int64()),
            (-5, pa.int32(), pa.int64()),
            (200, pa.uint8(), pa.int16()),
            (1.5, pa.float32(), pa.float64()),
            (-2.5, pa.float16(), pa.float64()),
            (math.inf, pa.float32(), pa.float64()),
            ("ü", pa.string(), pa.large_string()),
            (1_700_000_000, pa.timestamp("s"), pa.timestamp("s", "UTC")),
        ],
    )
    def test_promotion(self, value, narrow, wide):
        assert encode(key(value, narrow), narrow) == encode(key(value, wide), wide)

    def test_units_of_time(self):
        second, nano = pa.timestamp("s"), pa.timestamp("ns")
        assert encode(7, second) == encode(7_000_000_000, nano)

    def test_every_nan_is_one_value(self):
        for type in (pa.float16(), pa.float32(), pa.float64()):
            assert encode(key(math.nan, type), type) == encode(
                key(math.nan, pa.float64()), pa.float64()
            )

    def test_both_zeros_are_one_value(self):
        assert encode(key(-0.0, pa.float64()), pa.float64()) == encode(
            key(0.0, pa.float64()), pa.float64()
        )

    def test_kinds_do_not_meet(self):
        assert (
            len({encode(None, TEXT), encode("0", TEXT), encode(0, pa.int32()), encode("", TEXT)})
            == 4
        )
