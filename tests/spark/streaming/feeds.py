"""Streams for tests: rows that come file by file, and queries that run until nothing is left."""

import pyarrow as pa
import pyarrow.parquet as pq


class Feed:
    """A folder of Parquet files, each of which is one epoch of a stream."""

    def __init__(self, spark, folder, schema="id BIGINT, part STRING"):
        self.spark, self.folder, self.schema = spark, folder, schema
        self.folder.mkdir()
        self._count = 0

    def add(self, *rows, **columns):
        """Add a file of `(id, part)` rows, or of columns."""
        if not columns:
            columns = {"id": [row[0] for row in rows], "part": [row[1] for row in rows]}
            table = pa.table(columns, schema=pa.schema([("id", pa.int64()), ("part", pa.string())]))
        else:
            table = pa.table(columns)
        self._count += 1
        pq.write_table(table, self.folder / f"{self._count:04}.parquet")

    def stream(self):
        reader = self.spark.readStream.schema(self.schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.folder))


def run(writer, table=None):
    """Run a query to its end; to a table, or to the path that is an option of the writer."""
    writer = writer.trigger(availableNow=True)
    query = writer.start() if table is None else writer.toTable(table)
    try:
        query.awaitTermination()
    finally:
        query.stop()


def forget_commit(checkpoint, number=None):
    """Make a checkpoint as if the driver had died before it wrote down that an epoch is over."""
    commits = checkpoint / "commits"
    numbers = sorted(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    number = numbers[-1] if number is None else number
    (commits / str(number)).unlink()
    (commits / f".{number}.crc").unlink(missing_ok=True)
    return number
