"""Tags: names of versions, which then do not expire."""

from __future__ import annotations

from dataclasses import dataclass

from phalanx.errors import InvalidInput, TableNotFound
from phalanx.storage.records import TagRecord
from phalanx.transaction.snapshot import Version
from phalanx.transaction.view import View


@dataclass
class Tag:
    """Give a version a name, so that it does not expire; None for the base of the transaction.

    Running it raises InvalidInput if the name is not valid or already at another version or the
    table is weak, and TableNotFound if there is no such version.
    """

    name = "tag"
    tag: str
    version: Version | None

    def run(self, view: View) -> None:
        _check_name(self.tag)
        view.base.refuse_weak("tagged")
        if self.version is None:
            self.version = view.base.sequence
        target = view.base.find(self.version)
        existing = view.tags().get(self.tag)
        if existing is not None and existing.version != target.sequence:
            raise InvalidInput(
                f"the tag {self.tag!r} is already at version {existing.version}: drop it first"
            )
        view.add_tag(TagRecord(self.tag, target.sequence, target.manifest.version))


@dataclass
class DropTag:
    """Remove a tag. Its version then expires like any other.

    Running it raises InvalidInput if the name is not valid, and TableNotFound if there is no such
    tag.
    """

    name = "tag"
    tag: str

    def run(self, view: View) -> None:
        _check_name(self.tag)
        if self.tag not in view.tags():
            raise TableNotFound(f"the table {view.base.location.uri} has no tag {self.tag!r}")
        view.drop_tag(self.tag)


def _check_name(tag: str) -> None:
    if not isinstance(tag, str) or not 0 < len(tag) <= 256:
        raise InvalidInput("a tag's name is a string of 1 to 256 characters")
