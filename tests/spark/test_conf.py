"""Settings: which there are, where each may be given, and what takes precedence."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from phalanx import InvalidInput
from phalanx.spark.conf import (
    CATALOG,
    DISTRIBUTION,
    FILE_BYTES,
    ISOLATION,
    KEYED_LEAVES,
    READ,
    SESSION,
    SKIP_CHANGE_COMMITS,
    STREAM,
    TRANSACTION_ID,
    WRITE,
    resolve,
)
from tests.markdown import code, table_under

ROOT = Path(__file__).parents[2]
OPTION, CONF, TABLE = (
    {"isolation": "snapshot"},
    {"spark.sql.phalanx.isolation": "snapshot"},
    {"isolation": "snapshot"},
)
OTHER_CONF, OTHER = {"spark.sql.phalanx.isolation": "serializable"}, {"isolation": "serializable"}


@pytest.mark.parametrize(
    ("options", "confs", "table", "isolation"),
    [
        ({}, {}, {}, "serializable"),
        (None, None, TABLE, "snapshot"),
        ({}, CONF, OTHER, "snapshot"),
        (OPTION, OTHER_CONF, OTHER, "snapshot"),
        ({"ISOLATION": "snapshot"}, OTHER_CONF, {}, "snapshot"),
        (OTHER, CONF, TABLE, "serializable"),
    ],
)
def test_precedence(options, confs, table, isolation):
    assert resolve(ISOLATION, options, confs, table) == isolation


@pytest.mark.parametrize(
    ("setting", "places", "message"),
    [
        (ISOLATION, ({"Isolation": "x"},), "the option isolation is 'serializable' or 'snapshot'"),
        (ISOLATION, ({}, {"spark.sql.phalanx.isolation": "x"}), "the conf spark.sql.phalanx.iso"),
        (DISTRIBUTION, ({}, {}, {"write.distribution": "x"}), "the property write.distribution is"),
        (FILE_BYTES, ({"write.target_file_bytes": "x"},), "a whole number from 1, not 'x'"),
        (KEYED_LEAVES, ({}, {"spark.sql.phalanx.keyedLeaves": "-1"}), "is a whole number from 0"),
        (SKIP_CHANGE_COMMITS, ({"skipchangecommits": "1"},), "the option skipChangeCommits is"),
    ],
)
def test_a_bad_value_is_told_with_its_place(setting, places, message):
    with pytest.raises(InvalidInput, match=re.escape(message)):
        resolve(setting, *places)


def test_the_id_of_a_transaction_is_an_option_only():
    places = {"transaction_id": "x"}
    assert resolve(TRANSACTION_ID, places) == "x"
    assert resolve(TRANSACTION_ID, {}, places | {"spark.sql.phalanx.transaction_id": "x"}) is None
    assert resolve(TRANSACTION_ID, {}, {}, places) is None


@pytest.mark.parametrize(
    "code",
    [
        "from phalanx.spark import conf",
        "import phalanx.spark.conf; from phalanx.spark import conf",
        "from phalanx.spark.conf import resolve; import phalanx.spark; conf = phalanx.spark.conf",
        "import importlib, phalanx.spark; importlib.import_module('phalanx.spark.conf'); "
        "conf = phalanx.spark.conf",
    ],
)
def test_the_attribute_of_the_package_is_the_function(code):
    child = subprocess.run(
        [sys.executable, "-c", f"{code}\nassert conf.__name__ == 'conf' and callable(conf)"],
        env={"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
    )
    assert child.returncode == 0, child.stderr
    assert importlib.import_module("phalanx.spark.conf").resolve is resolve


def given_as(setting):
    places = []
    if setting.option is not None:
        places.append("option")
    if setting.conf is not None:
        places.append(f"`{setting.conf}`")
    if setting.table is not None:
        places.append("property")
    return ", ".join(places)


@pytest.mark.parametrize(
    ("heading", "settings", "columns"),
    [
        ("### Confs of the session", SESSION, ("conf",)),
        ("### Confs of a catalog", CATALOG, ("conf",)),
        ("### Options of a write", WRITE, ("option", "given as")),
        ("### Options of a read", READ, ("option",)),
        ("### Options of a stream that reads", STREAM, ("option",)),
    ],
)
def test_the_docs_say_the_same(heading, settings, columns):
    first, *more = columns
    assert table_under(ROOT / "docs" / "spark.md", heading) == [
        {first: f"`{setting.name}`"}
        | dict.fromkeys(more, given_as(setting))
        | {"default": code(setting.default, setting.kind), "meaning": setting.meaning}
        for setting in settings
    ]


def test_scala_uses_declared_names():
    text = "".join(path.read_text() for path in (ROOT / "jvm").glob("*.scala"))
    confs = {setting.conf for setting in SESSION}
    assert set(re.findall(r'"(spark\.sql\.phalanx\.\w+)"', text)) <= confs
    options = {setting.option for setting in (*WRITE, *READ)} | {"path"}
    assert set(re.findall(r'options\.get\("(\w+)"\)', text)) <= options
