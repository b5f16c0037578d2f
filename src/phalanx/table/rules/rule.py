"""A rule: one kind of problem, how it is found, and how it is mended."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from phalanx.table.format import size_text

if TYPE_CHECKING:
    from phalanx.table.rules.draft import Draft
    from phalanx.table.rules.state import TableState


@dataclass(frozen=True)
class Problem:
    """One thing that is not as it should be: what, and where; `size` in bytes where it has one."""

    #: Whether no row is affected, neither now nor by later changes.
    harmless: ClassVar[bool] = False

    kind: str
    what: str
    where: str
    size: int = 0

    def __str__(self) -> str:
        size = f" ({size_text(self.size)})" if self.size else ""
        return f"{self.kind}: {self.what}{size}: {self.where}"


@dataclass(frozen=True)
class HarmlessProblem(Problem):
    """A leftover of a writer that failed or still runs, or something that only costs time."""

    harmless: ClassVar[bool] = True


class RepairOutcome(NamedTuple):
    """A kind of problem that shows only when another is mended."""

    kind: str
    #: What is wrong, as a sentence.
    meaning: str
    #: What a repair does about it; empty where it only reports it.
    remedy: str = ""


class Rule(ABC):
    """One kind of problem.

    The first line of the docstring says what is wrong. A rule without a `remedy` cannot mend what
    it finds, and says why in its docstring. `docs/upkeep.md` lists all rules.
    """

    kind: ClassVar[str]
    #: How a repair mends it; empty where it cannot.
    remedy: ClassVar[str] = ""
    harmless: ClassVar[bool] = False
    #: What else shows when it is mended.
    outcomes: ClassVar[tuple[RepairOutcome, ...]] = ()

    @abstractmethod
    def find(self, state: TableState) -> Iterator[Problem]:
        """Every problem of this kind in a table."""

    def mend(self, draft: Draft, problems: Sequence[Problem]) -> None:
        """Change the draft so that `find` no longer yields these problems, which it has yielded.

        A problem that cannot be mended after all stays as it is: it will be found again.
        """
        raise NotImplementedError(f"{self.kind} cannot be mended")

    def problem(self, what: str, where: str, size: int = 0) -> Problem:
        return (HarmlessProblem if self.harmless else Problem)(self.kind, what, where, size)
