"""The first rows of a new leaf: a version on its main branch with a random number.

Such a leaf is two files, one with its rows and one with the version, and plain Lance shows the rows
at once. The number is random, so it means the same rows for ever: a leaf that is dropped, vacuumed
and created again does not get it another time. Commits on top of it count on from there.

The version appears at once, in a folder `_versions` that is prepared under another name and then
renamed. That fails where there is one already with anything in it. So of several writers who create
the same leaf one wins, and the others commit detached. If Lance creates an empty version at the
same time, it may come to lie beside this one.

What Lance would write is taken from a commit to a folder for temporary files. It says the same for
many leaves, except for the name, the size and the rows of their file, a number, an id and the time.
So it becomes a template, as in `phalanx.storage.first_versions`. It does not say which version it
began from: there may be one with the same number in the folder of the leaf, and what was computed
on that one does not hold for other rows.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import struct
import tempfile
import uuid
from collections.abc import Sequence

import lance
from lance import LanceOperation
from lance.fragment import FragmentMetadata

from phalanx.lru import LruCache
from phalanx.model.schema import TableSchema
from phalanx.storage.field_ids import lance_schema
from phalanx.storage.files import (
    COMMIT_MESSAGE,
    DETACHED,
    RANDOM,
    STAGED_VERSIONS,
    main_file,
    version_of,
)
from phalanx.storage.first_versions import (
    FirstVersion,
    create_file,
    has_one_file,
    renumbered,
    without_base,
)
from phalanx.storage.lance_errors import LANCE_ERRORS

#: Versions on main from here on are not given out: there is room for all that follow.
_LAST = 1 << 62

_templates: LruCache[TableSchema, FirstVersion] = LruCache(16)


class FirstRows:
    """The commit of files to a leaf on a file system that has no rows yet."""

    def __init__(
        self, leaf: str, schema: TableSchema, fragments: Sequence[FragmentMetadata]
    ) -> None:
        """`leaf` is its folder, `schema` that of the files."""
        self._leaf, self._schema, self._fragments = leaf, schema, fragments

    def on_main(self) -> int | None:
        """Begin the main branch with the files and return the version.

        None if there may be a version already, and if the file system refuses: nothing refers to
        what was written then.
        """
        version = RANDOM + secrets.randbelow(_LAST - RANDOM)
        manifest = self._manifest(version)
        if manifest is None:
            return None
        staged = f"{self._leaf}/{STAGED_VERSIONS}{uuid.uuid4().hex}"
        path = f"{staged}/{os.path.basename(main_file(version))}"
        try:
            os.mkdir(staged)
            with open(path, "xb", buffering=0) as file:
                is_whole = file.write(manifest) == len(manifest)
            if is_whole:
                os.rename(staged, f"{self._leaf}/_versions")
                return version
        except OSError:
            pass
        with contextlib.suppress(OSError):
            os.unlink(path)
        with contextlib.suppress(OSError):
            os.rmdir(staged)
        return None

    def detached(self) -> int | None:
        """Commit the files detached and return the version; None if Lance has to do it.

        It does so where the leaf has no main branch: it creates one.
        """
        try:
            names = os.listdir(f"{self._leaf}/_versions")
            versions = (version_of(f"_versions/{name}") for name in names)
            if not any(version is not None and version < DETACHED for version in versions):
                return None
            version = secrets.randbits(64) | DETACHED
            manifest = self._manifest(version)
            if manifest is None:
                return None
            create_file(f"{self._leaf}/_versions/d{version}.manifest", manifest)
        except OSError:  # Lance says what is wrong
            return None
        return version

    def _manifest(self, version: int) -> bytes | None:
        """The file of a version with this number; None if it has another shape than we know."""
        template = _templates.get(self._schema)
        if template is not None and template.fits(self._fragments):
            return template.filled(version, self._fragments[0])
        try:
            committed = self._committed()
            if template is None and has_one_file(self._fragments):
                _templates.put(self._schema, FirstVersion(committed, self._fragments[0]))
            return renumbered(committed, version)
        except (*LANCE_ERRORS, KeyError, struct.error):
            return None

    def _committed(self) -> bytes:
        """What Lance writes to commit the files to an empty leaf."""
        fields = lance_schema(self._schema)
        with tempfile.TemporaryDirectory(prefix="phalanx-") as folder:
            leaf = lance.LanceDataset.commit(
                f"{folder}/leaf", LanceOperation.Overwrite(fields, []), max_retries=0
            )
            if leaf.lance_schema != fields:  # a first version numbers its fields from 0
                leaf = lance.LanceDataset.commit(
                    leaf, LanceOperation.Overwrite(fields, []), read_version=leaf.version
                )
            leaf = lance.LanceDataset.commit(
                leaf,
                LanceOperation.Append(list(self._fragments)),
                read_version=leaf.version,
                commit_message=COMMIT_MESSAGE,
            )
            with open(f"{folder}/leaf/{main_file(leaf.version)}", "rb") as file:
                return without_base(file.read())
