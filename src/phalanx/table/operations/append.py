"""Append: add rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phalanx.storage.head import Head
from phalanx.table.partitioned_writer import WrittenLeaf
from phalanx.transaction.view import View


@dataclass
class Append:
    """Add rows."""

    name = "append"
    #: The head that the files were written for: its schema and spec.
    head: Head
    written: Sequence[WrittenLeaf]

    def run(self, view: View) -> None:
        view.check_files(self.head.schema)
        spec = view.spec_like(self.head.spec)
        places = [view.place(spec, leaf.keys) for leaf in self.written]
        view.prefetch_statistics(places)
        for leaf, place in zip(self.written, places, strict=True):
            view.append(place, leaf.written, leaf.statistics)
