"""Planning columns on disk: one Arrow file per table, memory-mapped when read.

A file holds the leaves of one snapshot. It need not be the newest snapshot: a process that finds a
newer one in the table reads only what has changed since (see `phalanx.transaction.snapshot`).
The cache may be deleted at any time. A file is written under a temporary name and then renamed, so
no reader sees a partial file.

`PHALANX_CACHE` names the folder (`off` disables the cache), `PHALANX_CACHE_BYTES` limits its size.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from pathlib import Path

import pyarrow as pa

from phalanx.errors import CorruptTable
from phalanx.storage.head import Head
from phalanx.storage.leaf_index import LeafIndex
from phalanx.storage.manifest import ManifestVersion, head_of

#: Snapshots with fewer leaves are not cached: reading them from the manifest is faster.
SMALLEST = 256
_DEFAULT_BYTES = 512 * 1024 * 1024
_LAYOUT = 2


def folder() -> Path | None:
    """The cache's folder, or None if the cache is off."""
    setting = os.environ.get("PHALANX_CACHE")
    if setting == "off":
        return None
    if setting:
        return Path(setting)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "phalanx"


def load(manifest: ManifestVersion) -> tuple[Head, LeafIndex, bool] | None:
    """The head and leaves of the cached snapshot of this table, or None if there is none.

    The third value says whether the snapshot is of this version of the manifest. If it is not, the
    caller must check that it belongs to the same history: another table may have been copied here.
    """
    path = path_of(manifest)
    if path is None or not path.exists():
        return None
    try:
        with pa.memory_map(os.fspath(path)) as source:
            table = pa.ipc.open_file(source).read_all()
        row = json.loads((table.schema.metadata or {})[b"head"])
        row["committed_at"] = pa.scalar(row["committed_at"], pa.timestamp("us", "UTC")).as_py()
        head = head_of(row, manifest.location.uri)
        os.utime(path)
    except (OSError, pa.ArrowInvalid, KeyError, ValueError, CorruptTable):
        return None
    is_current = manifest.identity is not None and row.get("manifest") == list(manifest.identity)
    return head, LeafIndex(table, head.specs), is_current


def save(manifest: ManifestVersion, head: Head, leaves: LeafIndex) -> None:
    """Cache a snapshot's planning columns. I/O errors are ignored: the cache is optional."""
    path = path_of(manifest)
    if path is None or len(leaves) < SMALLEST or not head.ours:
        return
    row = {
        "sequence": head.sequence,
        "committed_at": pa.scalar(head.committed_at, pa.timestamp("us", "UTC")).value,
        "metadata": json.dumps(head.to_metadata()),
        "manifest": manifest.identity,
    }
    table = leaves.table.replace_schema_metadata({"head": json.dumps(row)})
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
        _trim(path.parent)


def path_of(manifest: ManifestVersion) -> Path | None:
    """The cache file of a table, whether or not it exists; None if the table is not cached."""
    root = folder()
    if root is None or manifest.table_id is None:
        return None
    identity = json.dumps([_LAYOUT, manifest.location.uri, manifest.table_id])
    digest = hashlib.blake2b(identity.encode(), digest_size=20).hexdigest()
    return root / f"{digest}.arrow"


def _trim(root: Path) -> None:
    """Delete the least recently used files until the cache is within its limit."""
    limit = int(os.environ.get("PHALANX_CACHE_BYTES", _DEFAULT_BYTES))
    files = []
    for path in root.glob("*.arrow"):
        with contextlib.suppress(OSError):
            stat = path.stat()
            files.append((stat.st_mtime, stat.st_size, path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files)[:-1]:
        if total <= limit:
            return
        with contextlib.suppress(OSError):
            path.unlink()
            total -= size
