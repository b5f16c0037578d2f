"""What can be wrong with a table: one rule for each kind of problem.

`check` asks every rule what it finds. `repair` lets them mend what they find, one after the other
and in this order, so that a rule may rely on what the rules before it have mended.
"""

from __future__ import annotations

from phalanx.table.rules.columns import (
    ColumnMissing,
    ColumnType,
    GuardMissing,
    IndexMissing,
    PublishedCopyDiffers,
)
from phalanx.table.rules.files import (
    CountDiffers,
    FileDamaged,
    FileMissing,
    LeafMissing,
    MainMissing,
    OrphanFile,
    OrphanFolder,
    SchemaDrift,
    VersionMissing,
)
from phalanx.table.rules.foreign import ForeignCommits, ForeignIndexes
from phalanx.table.rules.head import (
    HeadDamaged,
    HeadMissing,
    HeadTwice,
    TransactionLost,
    TransactionMissing,
)
from phalanx.table.rules.leaves import (
    LeafOutside,
    LeafTwice,
    LeafUnknown,
    LeafValueDiffers,
    SpecDiffers,
    VersionDiffers,
    VersionLost,
)
from phalanx.table.rules.lost import LeafLost, LeafReplaced, RowLost
from phalanx.table.rules.namespaces import (
    NamespaceEmpty,
    NamespaceMissing,
    NamespaceValueDiffers,
)
from phalanx.table.rules.restored import ManifestRestored
from phalanx.table.rules.rows import CopyStale, MetadataUnreadable, RowTwice
from phalanx.table.rules.rule import Rule
from phalanx.table.rules.snapshots import SnapshotUnreadable, TagBroken
from phalanx.table.rules.timelines import (
    TimelineDiffers,
    TimelineLost,
    TimelineMissing,
    TimelineUnknown,
)

RULES: tuple[Rule, ...] = (
    # Ids that occur once, a head and all columns: everything below looks rows and cells up.
    HeadTwice(),
    RowTwice(),
    HeadMissing(),
    HeadDamaged(),
    ManifestRestored(),
    ColumnMissing(),
    ColumnType(),
    RowLost(),
    TransactionLost(),
    TransactionMissing(),
    MetadataUnreadable(),
    # What a leaf's row says of itself, then what repeats it.
    LeafLost(),
    LeafUnknown(),
    LeafOutside(),
    LeafTwice(),
    SpecDiffers(),
    VersionDiffers(),
    VersionLost(),
    LeafValueDiffers(),
    NamespaceMissing(),
    NamespaceValueDiffers(),
    NamespaceEmpty(),
    CopyStale(),
    TimelineMissing(),
    TimelineDiffers(),
    TimelineUnknown(),
    TimelineLost(),
    # What other clients see.
    PublishedCopyDiffers(),
    GuardMissing(),
    IndexMissing(),
    # Files, once it is known which version of each leaf counts.
    LeafMissing(),
    VersionMissing(),
    FileMissing(),
    FileDamaged(),
    SchemaDrift(),
    CountDiffers(),
    MainMissing(),
    LeafReplaced(),
    ForeignCommits(),
    ForeignIndexes(),
    OrphanFile(),
    OrphanFolder(),
    SnapshotUnreadable(),
    TagBroken(),
)
