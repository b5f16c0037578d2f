"""Overwrite: replace all rows, or those of the partitions that get new rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phalanx.errors import ConflictError
from phalanx.storage.head import Head
from phalanx.table.partitioned_writer import WrittenLeaf
from phalanx.transaction.failpoints import reach
from phalanx.transaction.view import View


@dataclass
class Overwrite:
    """Replace all rows, or those of the partitions that get new rows.

    Running it raises ConflictError if only partitions are replaced and the spec has changed.
    """

    name = "overwrite"
    #: The head that the files were written for: its schema and spec.
    head: Head
    written: Sequence[WrittenLeaf]
    only_partitions: bool

    def run(self, view: View) -> None:
        view.check_files(self.head.schema)
        current, spec = view.current(), view.spec_like(self.head.spec)
        if self.only_partitions:
            if spec != view.head.spec:
                raise ConflictError(
                    f"the partition spec of {view.base.location.uri} was changed by another "
                    "transaction: nothing was overwritten, try again"
                )
            places = [current.leaves.find_all(spec, leaf.keys) for leaf in self.written]
            view.remove(current.leaves.rows(np.concatenate(places)) if places else ())
        else:
            view.remove(current.leaves.rows())
        reach("overwrite.removed")
        for leaf in self.written:
            view.append(view.place(spec, leaf.keys), leaf.written, leaf.statistics)
