"""The manifest of another client becomes that of a table of ours, in one commit.

Stock clients are kept from writing first, so that none of them drops the columns that come with our
rows. Then the rows are replaced, if there has been no other commit. The copies of schema and specs,
and the indexes, come last: without them the table is complete, only slower.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator

from phalanx.errors import PhalanxError
from phalanx.storage.head import Head
from phalanx.storage.lance_errors import LANCE_ERRORS
from phalanx.storage.location import Location
from phalanx.storage.manifest import ManifestVersion
from phalanx.storage.manifest_update import ManifestUpdate


@contextlib.contextmanager
def guarded(manifest: ManifestVersion) -> Iterator[ManifestVersion]:
    """A manifest that stock clients do not write to; they may again if the block fails.

    Raises SwapLost if another client has committed since this version.
    """
    guarded = manifest.guarded()
    try:
        yield guarded
    except BaseException:
        if guarded is not manifest:
            with contextlib.suppress(PhalanxError, *LANCE_ERRORS):
                manifest.unguard()
        raise


def replace_rows(
    manifest: ManifestVersion, head: Head, update: ManifestUpdate, gone: Collection[str] = ()
) -> None:
    """Replace the rows of a manifest by those of a table whose first head is `head`.

    Columns that are `gone` go, and other rows and columns of its client stay. Raises SwapLost if
    there has been another commit since this version; nothing is changed then.
    """
    try:
        manifest.replace(update, gone)
    except OSError:
        # The commit may have landed even if its reply was lost.
        if not ManifestVersion(manifest.location).has_transaction(head.transaction_id):
            raise


def publish(location: Location) -> ManifestVersion:
    """Publish schema and specs of a table that was taken over, where that is missing."""
    manifest = ManifestVersion(location)
    manifest.publish(manifest.head())
    return manifest
