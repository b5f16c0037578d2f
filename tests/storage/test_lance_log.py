import os
import subprocess
import sys

import pytest

#: A compaction that loses to a delete, and a warning about something else.
PROGRAM = """
import sys
import phalanx.storage
import lance, lance.log, pyarrow as pa
from lance.optimize import Compaction
uri = sys.argv[1]
for mode in ("create", "append"):
    lance.write_dataset(pa.table({"id": [1, 2]}), uri, mode=mode)
dataset = lance.dataset(uri)
results = [task.execute(dataset) for task in Compaction.plan(dataset, {}).tasks]
lance.dataset(uri).delete("id = 2")
try:
    Compaction.commit(dataset, results)
except OSError as error:
    print("lost" if "conflict" in str(error) else error)
lance.write_dataset(pa.table({"id": [1]}), uri + "-new", mode="append")
print(lance.log.LOGGER.level)
"""


def run(tmp_path, **variables):
    environment = {k: v for k, v in os.environ.items() if k != "LANCE_LOG"} | variables
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, tmp_path / "d"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )


def test_a_lost_compaction_is_not_printed(tmp_path):
    done = run(tmp_path)
    assert done.stdout.split() == ["lost", "20"]
    assert "Compaction commit failed" not in done.stderr
    assert "No existing dataset" in done.stderr


@pytest.mark.parametrize(("setting", "level"), [("warn", "30"), ("info", "20")])
def test_what_a_user_sets_stands(tmp_path, setting, level):
    done = run(tmp_path, LANCE_LOG=setting)
    assert done.stdout.split() == ["lost", level]
    assert "Compaction commit failed" in done.stderr
