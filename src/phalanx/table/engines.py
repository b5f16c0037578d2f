"""Snapshots as pyarrow datasets, so that other engines push filters and columns down.

DuckDB, Polars and DataFusion know pyarrow's `Dataset`: they ask it for a scanner with a filter and
columns. `ArrowDataset` answers with a scan, which prunes partitions by the part of the filter that
the model can express. The whole filter is then applied to the rows by pyarrow, so that they are
exactly those that the engine has asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from phalanx.errors import InvalidInput
from phalanx.model.arrow_filters import names_in
from phalanx.table.arguments import whole_number
from phalanx.table.filters import Filter, SqlFilter, WeakerFilter
from phalanx.table.scan import Scan
from phalanx.table.words import refusing
from phalanx.transaction.snapshot import Snapshot

T = TypeVar("T")


class Scanner:
    """What an engine has asked a dataset for, in the form of pyarrow's `Scanner`."""

    def __init__(self, scan: Scan, filter: pc.Expression | None, names: Sequence[str]) -> None:
        """`names` are the columns to return; the scan also has those that the filter needs."""
        self._scan, self._filter, self._names = scan, filter, list(names)

    @property
    def scan(self) -> Scan:
        """The scan that reads the rows; its plan says which partitions."""
        return self._scan

    @property
    def projected_schema(self) -> pa.Schema:
        whole = self._scan.schema
        return pa.schema([whole.field(name) for name in self._names], metadata=whole.metadata)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows that match the filter, in batches."""
        for batch in self._scan.to_batches():
            if self._filter is not None:
                batch = batch.filter(self._filter)
            if batch.num_rows:
                yield batch if batch.schema.names == self._names else batch.select(self._names)

    def to_reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_table(self) -> pa.Table:
        return pa.Table.from_batches(self.to_batches(), self.projected_schema)

    def count_rows(self) -> int:
        if self._filter is None:
            return self._scan.count()
        return sum(batch.num_rows for batch in self.to_batches())

    def head(self, num_rows: int) -> pa.Table:
        """The first rows that match. Raises InvalidInput for a number below 0."""
        batches, left = [], whole_number(num_rows, 0, "the number of rows")
        for batch in self.to_batches():
            if left <= 0:
                break
            batches.append(batch.slice(0, left))
            left -= batch.num_rows
        return pa.Table.from_batches(batches, self.projected_schema)


def _apart(run: Callable[[], T]) -> T:
    """Run something in a thread of its own.

    The threads of DataFusion are inside of its runtime, and cannot start another one, which the
    model does where it evaluates a term.
    """
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run).result()


class _ScannerApart(Scanner):
    """A scanner that reads in a thread of its own, for callers that are threads of DataFusion."""

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        batches = super().to_batches()
        with ThreadPoolExecutor(1) as pool:
            try:
                while (batch := pool.submit(next, batches, None).result()) is not None:
                    yield batch
            finally:
                pool.submit(batches.close).result()  # type: ignore[attr-defined]


class DatasetFragment:
    """A dataset as its own and only fragment: DataFusion reads fragments, not datasets.

    One is enough: a scan reads leaves in threads of its own. DataFusion takes a filter that it
    could translate for applied, although pyarrow means something else by it: `~isin` finds NULL
    where NOT IN does not, and NaN is not greater than 1. So it is applied as what it was in SQL.
    """

    def __init__(self, dataset: ArrowDataset) -> None:
        self._dataset = dataset

    def scanner(
        self,
        schema: pa.Schema | None = None,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        **options: Any,
    ) -> Scanner:
        """A scanner of the dataset. Its schema is that of the table, whatever is asked for.

        Raises InvalidInput for a filter that has no exact meaning here.
        """
        snapshot = self._dataset._snapshot
        names = list(snapshot.head.schema.arrow.names if columns is None else columns)
        where = None if filter is None else SqlFilter(filter)
        return _ScannerApart(_apart(lambda: Scan(snapshot, names, where)), None, names)


class ArrowDataset(ds.Dataset):  # type: ignore[misc]
    """A snapshot as pyarrow, DuckDB and Polars know a dataset.

    Every method of pyarrow's class is replaced, because there is no dataset of pyarrow's behind it.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        """pyarrow's own constructor is not called: nobody may call it.

        Raises InvalidInput for anything else than a snapshot, such as the path of a table.
        """
        if not isinstance(snapshot, Snapshot):
            raise InvalidInput(f"open a table with phalanx.open({snapshot!r})")
        self._snapshot = snapshot

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        return self._snapshot.head.schema.arrow

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: Filter | None = None,
        **options: Any,
    ) -> Scanner:
        """A scanner, as pyarrow's datasets have one. See `scan` for more.

        A pyarrow expression means here what it means to pyarrow; SQL text and tuples mean what
        they mean in `scan`. Options other than `columns` and `filter`, such as the size of batches,
        make no difference.

        Raises:
            InvalidInput: A column is unknown, or the filter is not valid.
        """
        known = self.schema.names
        names = list(known if columns is None else columns)
        if filter is not None and not isinstance(filter, pc.Expression):
            return Scanner(Scan(self._snapshot, names, filter), None, names)
        needed = [] if filter is None else [path[0] for path in names_in(filter)]
        for name in (*names, *needed):
            if name not in known:
                raise InvalidInput(f"unknown column {name!r}: the table has {', '.join(known)}")
        wanted = list(dict.fromkeys([*names, *needed]))
        where = None if filter is None else WeakerFilter(filter)
        return Scanner(_apart(lambda: Scan(self._snapshot, wanted, where)), filter, names)

    def to_batches(
        self,
        columns: Sequence[str] | None = None,
        filter: Filter | None = None,
        **options: Any,
    ) -> Iterator[pa.RecordBatch]:
        """The rows in batches; see `scanner`."""
        return self.scanner(columns, filter, **options).to_batches()

    def to_table(
        self,
        columns: Sequence[str] | None = None,
        filter: Filter | None = None,
        **options: Any,
    ) -> pa.Table:
        """The rows as a pyarrow Table; see `scanner`."""
        return self.scanner(columns, filter, **options).to_table()

    def count_rows(self, filter: Filter | None = None, **options: Any) -> int:
        """The number of rows; see `scanner`."""
        columns = self.schema.names if filter is None else []
        return self.scanner(columns, filter, **options).count_rows()

    def head(self, num_rows: int = 5, columns: Sequence[str] | None = None, **options: Any) -> Any:
        """The first rows, as a pyarrow Table; see `scanner`."""
        return self.scanner(columns, **options).head(num_rows)

    def get_fragments(self, filter: pc.Expression | None = None) -> Iterator[DatasetFragment]:
        """The dataset as one fragment; the scanner of it prunes by its own filter."""
        yield DatasetFragment(self)

    @property
    def partition_expression(self) -> pc.Expression:
        """What holds for every row: nothing is promised."""
        return pc.scalar(True)

    join, join_asof, replace_schema, sort_by, take = map(
        refusing, ("join", "join_asof", "replace_schema", "sort_by", "take")
    )
