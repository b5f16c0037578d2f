"""Ways to make a change fail at every one of its steps.

A step is a call of `reach("…")` in the source, or one that Lance writes something in: the moment
before it, and the moment after it. `PHALANX_FAILPOINT` chooses among all of them.
"""

import contextlib
import importlib
import os
import re
from collections import Counter
from pathlib import Path

import phalanx
from phalanx.transaction import failpoints

#: Where files are written or removed, by whom, and what the step is called.
WRITES = [
    ("lance", "LanceDataset.commit", "lance.commit"),
    ("lance", "LanceDataset.create_scalar_index", "lance.index"),
    ("lance", "LanceDataset.add_columns", "lance.add-columns"),
    ("lance", "LanceDataset.restore", "lance.restore"),
    ("lance.fragment", "LanceFragment.delete", "lance.delete"),
    ("lance.dataset", "MergeInsertBuilder.execute", "lance.merge"),
    ("lance.dataset", "MergeInsertBuilder.execute_uncommitted", "lance.merge-uncommitted"),
    ("lance.optimize", "Compaction.commit", "lance.compact"),
    ("lance.dataset", "DatasetOptimizer.optimize_indices", "lance.reindex"),
    ("phalanx.storage.leaf", "write_fragments", "lance.write"),
    ("phalanx.storage.manifest", "write_fragments", "lance.write-manifest"),
    ("phalanx.storage.new_leaves", "os.mkdir", "leaf.mkdir"),
    ("phalanx.storage.new_leaves", "os.link", "leaf.link"),
    ("phalanx.storage.new_leaves", "os.rename", "leaf.rename"),
    ("phalanx.storage.files", "DatasetFolder.delete", "file.delete"),
]


@contextlib.contextmanager
def watched():
    """Every write is a failpoint before and after it."""
    undo = []
    for module, path, name in WRITES:
        *owners, attribute = path.split(".")
        owner = importlib.import_module(module)
        for part in owners:
            owner = getattr(owner, part)
        real = vars(owner)[attribute]
        undo.append((owner, attribute, real))
        function = real.__func__ if isinstance(real, staticmethod) else real
        wrapped = _with_failpoints(function, name)
        setattr(owner, attribute, staticmethod(wrapped) if function is not real else wrapped)
    try:
        yield
    finally:
        for owner, attribute, real in undo:
            setattr(owner, attribute, real)


def _with_failpoints(function, name):
    def call(*args, **options):
        failpoints.reach(f"{name}.before")
        result = function(*args, **options)
        failpoints.reach(f"{name}.after")
        return result

    return call


def steps(change):
    """The failpoints that a change comes by, with how often it does."""
    failpoints.passed = []
    try:
        with watched():
            change()
        return Counter(failpoints.passed)
    finally:
        failpoints.passed = None


@contextlib.contextmanager
def failing(step, action, visit=1):
    """Fail at a step: `raise` raises an OSError, `kill` ends the process."""
    failpoints._visits.clear()
    os.environ["PHALANX_FAILPOINT"] = f"{step}:{action}:{visit}"
    try:
        with watched():
            yield
    finally:
        del os.environ["PHALANX_FAILPOINT"]


def named_in_source():
    """The names of all failpoints in the source."""
    source = Path(phalanx.__file__).parent
    found = set()
    for path in source.rglob("*.py"):
        found |= set(re.findall(r'\breach\(\s*"([^"]+)"', path.read_text()))
    return found
