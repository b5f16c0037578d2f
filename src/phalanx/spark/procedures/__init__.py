"""Procedures: `CALL <catalog>.system.<name>(…)`. Each is in a file of its own, and listed here."""

from phalanx.spark.procedures import (  # noqa: F401 - importing a file registers its procedures
    advise,
    check,
    evolve_partitioning,
    expire_snapshots,
    export_delta,
    export_parquet,
    import_delta,
    import_parquet,
    indexes,
    optimize,
    repair,
    rewrite,
    rollback,
    tag,
    upgrade,
    vacuum,
)
