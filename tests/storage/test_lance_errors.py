import ast
import errno
import subprocess
import sys

import lance
import pyarrow as pa
import pytest

from phalanx.storage import lance_errors
from phalanx.storage.location import Location


def raised(call, *arguments, **options):
    with pytest.raises(lance_errors.LANCE_ERRORS) as caught:
        call(*arguments, **options)
    return caught.value


@pytest.fixture
def dataset(tmp_path):
    return lance.write_dataset(pa.table({"i": [1, 2, 3]}), tmp_path / "d")


class TestRealErrors:
    """Each text that is relied on, provoked in Lance."""

    def test_a_missing_dataset(self, tmp_path):
        error = raised(lance.dataset, tmp_path / "none")
        assert lance_errors.is_missing(error)
        assert not lance_errors.is_unreachable(error)

    def test_a_missing_version(self, dataset):
        assert lance_errors.is_missing(raised(lance.dataset, dataset.uri, version=9))

    def test_a_missing_file(self, dataset, tmp_path):
        for path in (tmp_path / "d" / "data").iterdir():
            path.unlink()
        error = raised(lance.dataset(dataset.uri).to_table)
        assert lance_errors.is_damage(error)
        assert not lance_errors.is_unreachable(error)

    def test_a_file_that_was_cut_short(self, dataset, tmp_path):
        for path in (tmp_path / "d" / "data").iterdir():
            path.write_bytes(path.read_bytes()[:10])
        assert lance_errors.is_damage(raised(lance.dataset(dataset.uri).to_table))

    def test_a_lost_race(self, dataset):
        def update(handle, value):
            merge = handle.merge_insert("i").when_matched_update_all().conflict_retries(0)
            merge.execute(pa.table({"i": [value]}))

        other = lance.dataset(dataset.uri, version=1)
        update(lance.dataset(dataset.uri, version=1), 2)
        error = raised(update, other, 2)
        assert lance_errors.is_lost_race(error, dataset.uri)

    def test_a_race_in_the_name_of_a_table_is_none(self):
        error = OSError("Generic LocalFileSystem error: /lake/conflict/x is full")
        assert not lance_errors.is_lost_race(error, "/lake/conflict")
        text = (
            "Object at location a/conflict/x not found: Error performing PUT "
            "http://127.0.0.1:9/lake/a%2Fconflict%2F%5Fversions in 1ms - 500"
        )
        assert not lance_errors.is_lost_race(OSError(text), "gs://lake/a/conflict")

    @pytest.mark.parametrize("name", ["t", "conflict", "concurrent", "e/c"])
    def test_nor_does_a_name_hide_one(self, name):
        error = OSError("Too many concurrent writers. Attempted 0 retries., /rust/retry.rs:103:9")
        assert lance_errors.is_lost_race(error, f"gs://lake/{name}")

    @pytest.mark.parametrize(
        "text",
        [
            "Generic GCS error: Error performing PUT http://s/b in 3s, after 3 retries - Server "
            "returned non-2xx status code: 429 Too Many Requests: <Error>",
            "Generic S3 error: Server returned error response: <Code>SlowDown</Code>",
        ],
    )
    def test_a_store_that_asks_for_a_slower_pace(self, text):
        assert lance_errors.is_throttled(OSError(text))

    def test_a_store_that_fails_asks_for_no_pace(self):
        text = "Server returned non-2xx status code: 503 Service Unavailable: <Code>Failed</Code>"
        assert not lance_errors.is_throttled(OSError(text))

    @pytest.mark.parametrize("uri", ["s3://current", "gs://lake/t", "s3://lake/con", "/lake/w"])
    def test_a_lost_race_whatever_the_table_is_called(self, uri):
        path = uri.partition("://")[2] or uri
        for text in ("Too many concurrent writers", f"Commit conflict for version 3 of {path}/x"):
            assert lance_errors.is_lost_race(OSError(text), uri)
        assert not lance_errors.is_lost_race(OSError(f"disk failed: {path}/conflict/x"), uri)

    def test_an_unknown_store(self):
        assert lance_errors.is_unknown_store(raised(lance.dataset, "nowhere://x/y"))

    def test_a_refused_filter(self, dataset):
        error = raised(dataset.scanner(filter="no_such_function(i)").to_table)
        assert lance_errors.refuses_filter(error)
        assert not lance_errors.is_damage(error)

    def test_a_full_disk_is_none_of_them(self):
        error = OSError(errno.ENOSPC, "No space left on device")
        kinds = (lance_errors.is_missing, lance_errors.is_damage, lance_errors.is_unreachable)
        assert not any(kind(error) for kind in kinds)
        assert not lance_errors.is_lost_race(error, "/lake")


class TestReason:
    def test_one_line_without_places_or_secrets(self):
        location = Location("s3://lake/t", {"secret_access_key": "hush", "region": "here"})
        error = OSError("External error: LanceError(IO): no hush here, /rust/x.rs:1:2\nmore")
        assert location.reason(error) == "no *** here"

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            (
                "Generic S3 error: Error performing GET http://s/b in 4ms - Server returned "
                "non-2xx status code: 404 Not Found: <?xml\n<Code>NoSuchBucket</Code>",
                "the bucket does not exist",
            ),
            (
                "Generic S3 error: Error performing GET http://s/b in 4ms - HTTP error: builder "
                "error",
                "allow_http='true'",
            ),
            ("Generic N/A error: Failed to get AWS credentials: X { y }", "no credentials: give"),
        ],
    )
    def test_a_store_that_is_not_set_up(self, text, expected):
        said = Location("s3://b/t").reason(OSError(text))
        assert expected in said
        assert "Generic" not in said

    def test_another_failure_of_http_is_told_as_it_is(self):
        text = "Generic S3 error: Error performing GET https://s/b - HTTP error: builder error"
        assert Location("s3://b/t").reason(OSError(text)) == text


class TestErrors:
    """What Lance says, sorted: damage, a store that was not reached, and the rest."""

    LOST = "LanceError(IO): Generic N/A error: Not found: t/data/x.lance, /rust/x.rs:1:2"
    SHORT = (
        "External error: LanceError(IO): Generic S3 error: Error performing GET http://s in 4ms - "
        "Server returned non-2xx status code: 416 Range Not Satisfiable: <?xml"
    )
    DOWN = (
        "LanceError(IO): Generic S3 error: Error performing GET http://s/x in 5ms, after 3 retries "
        "- HTTP error: error sending request, /rust/x.rs:1:2"
    )
    NONE = "Object at location t/1.manifest not found: Error performing HEAD http://s/t: 404"
    FILTER = "Invalid user input: Query Execution error: Not found: x, /rust/x.rs:1:2"

    @pytest.mark.parametrize(
        ("text", "damage", "unreachable"),
        [
            (LOST, True, False),
            (SHORT, True, False),
            (DOWN, False, True),
            (NONE, False, False),
            (FILTER, False, False),
        ],
    )
    def test_sorted(self, text, damage, unreachable):
        error = OSError(text)
        assert (lance_errors.is_damage(error), lance_errors.is_unreachable(error)) == (
            damage,
            unreachable,
        )


class Stop(Exception):
    """What a signal handler of a user raises."""


class TestInterrupts:
    """An exception of a signal handler comes out as it is, not as damage of the table."""

    @pytest.mark.parametrize("kind", [KeyboardInterrupt, Stop])
    def test_it_is_raised_again(self, kind):
        error = pa.ArrowInvalid(f"External error: {kind.__name__}: enough")
        with pytest.raises(kind, match="enough"):
            lance_errors.raise_interrupt(error)

    @pytest.mark.parametrize(
        "text", ["External error: LanceError(IO): Not found: x", "Invalid user input: Stop: x"]
    )
    def test_an_error_of_lance_is_none(self, text):
        lance_errors.raise_interrupt(OSError(text))

    def test_while_a_table_is_read(self, tmp_path):
        """Real signals, as fast as they come."""
        code = f"""
import os, signal, threading, time
import pyarrow as pa, phalanx
table = phalanx.create({str(tmp_path / "t")!r}, pa.schema([("id", pa.int64())]))
table.append([{{"id": n}} for n in range(1000)])
class Stop(Exception): pass
def stop(*_): raise Stop
signal.signal(signal.SIGUSR1, stop)
running = True
def poke():
    while running:
        time.sleep(0.004)
        os.kill(os.getpid(), signal.SIGUSR1)
threading.Thread(target=poke, daemon=True).start()
counts, end = {{}}, time.monotonic() + 40
while sum(counts.values()) < 500 and time.monotonic() < end:
    try:
        try:
            phalanx.open(table.uri).count("id > 5")
            kind = "ok"
        except Exception as error:
            kind = type(error).__name__
        counts[kind] = counts.get(kind, 0) + 1
    except Stop:
        pass
running = False
try:
    time.sleep(0.1)
except Stop:
    pass
print(sorted(counts))
"""
        child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        kinds = set(ast.literal_eval(child.stdout.strip()))
        assert "Stop" in kinds, child.stdout + child.stderr
        assert kinds <= {"Stop", "ok", "InterruptedError"}, child.stdout + child.stderr
