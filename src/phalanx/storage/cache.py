"""Planning columns on disk: one Arrow file for each snapshot, mapped into memory when read.

The cache is a convenience that may vanish at any time. A file is keyed by all that could tell
two tables apart: the URI, the table's own id, the manifest's version and, on a file system, the
identity of the manifest file itself (a table that was copied over another looks the same
otherwise). Files are written under another name and then renamed, so nobody sees half of one.

`PHALANX_CACHE` names the folder (`off` turns it off), `PHALANX_CACHE_BYTES` its size.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa

from phalanx.storage.head import Head
from phalanx.storage.leaves import Leaves
from phalanx.storage.manifest import ManifestVersion, head_of

#: Snapshots with fewer leaves are read faster from the manifest than they are looked up.
SMALLEST = 256
_DEFAULT_BYTES = 512 * 1024 * 1024
_LAYOUT = 1


def folder() -> Path | None:
    """The cache's folder, or None where it is turned off."""
    named = os.environ.get("PHALANX_CACHE")
    if named == "off":
        return None
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "phalanx"


def load(manifest: ManifestVersion) -> tuple[Head, Leaves] | None:
    """The head and leaves of a snapshot, if they are cached."""
    path = _path(manifest)
    if path is None or not path.exists():
        return None
    try:
        with pa.memory_map(os.fspath(path)) as source:
            table = pa.ipc.open_file(source).read_all()
        row = json.loads((table.schema.metadata or {})[b"head"])
        row["committed_at"] = pa.scalar(row["committed_at"], pa.timestamp("us", "UTC")).as_py()
        head = head_of(row)
        os.utime(path)
    except (OSError, pa.ArrowInvalid, KeyError, ValueError):
        return None
    return head, Leaves(table, head.specs)


def save(manifest: ManifestVersion, head: Head, leaves: Leaves) -> None:
    """Keep a snapshot's planning columns. Failures are of no consequence."""
    path = _path(manifest)
    if path is None or len(leaves) < SMALLEST or not head.ours:
        return
    row = {
        "sequence": head.sequence,
        "committed_at": pa.scalar(head.committed_at, pa.timestamp("us", "UTC")).value,
        "metadata": json.dumps(head.to_metadata()),
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


def _path(manifest: ManifestVersion) -> Path | None:
    root = folder()
    if root is None or manifest.table_id is None:
        return None
    identity: list[Any] = [_LAYOUT, manifest.location.uri, manifest.table_id, manifest.version]
    if manifest.location.is_local:
        file = Path(
            manifest.location.manifest, "_versions", f"{2**64 - 1 - manifest.version}.manifest"
        )
        try:
            stat = file.stat()
        except OSError:
            return None
        identity += [stat.st_ino, stat.st_mtime_ns, stat.st_size]
    digest = hashlib.blake2b(json.dumps(identity).encode(), digest_size=20).hexdigest()
    return root / f"{digest}.arrow"


def _trim(root: Path) -> None:
    """Delete the files that were used longest ago until the cache fits."""
    bound = int(os.environ.get("PHALANX_CACHE_BYTES", _DEFAULT_BYTES))
    files = []
    for path in root.glob("*.arrow"):
        with contextlib.suppress(OSError):
            stat = path.stat()
            files.append((stat.st_mtime, stat.st_size, path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files)[:-1]:
        if total <= bound:
            return
        with contextlib.suppress(OSError):
            path.unlink()
            total -= size
