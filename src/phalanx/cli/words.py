"""Messages of the library in the words of a shell.

The library speaks to people who write Python: `run check()`, `overwrite=True`. Whoever reads the
same sentence in a shell is told which command to run and which option to give.
"""

from __future__ import annotations

import re
import shlex

#: Calls in messages, and the commands that do the same.
_CALLS = {
    "phalanx.interop.upgrade or `phalanx upgrade`": "upgrade",
    "phalanx.interop.hive.adopt": "upgrade",
    "phalanx.interop.upgrade": "upgrade",
    "phalanx.create": "create",
    "phalanx.interop.parquet.import_": "import",
    "phalanx.interop.delta.import_": "import",
    "evolve_partitioning()": "evolve",
    "expire_snapshots()": "expire",
    "refresh_indexes()": "index --refresh",
    "make_strong()": "evolve --strong",
    **{f"{verb}()": verb for verb in ("check", "repair", "advise", "optimize", "rewrite")},
    **{f"{verb}()": verb for verb in ("vacuum", "upgrade", "append", "rollback")},
}
#: The longest first, so that no call is taken for the end of another.
_CALL = re.compile(
    r"(?<![\w.])(?:" + "|".join(re.escape(c) for c in sorted(_CALLS, key=len, reverse=True)) + ")"
)
_SWITCH = re.compile(r"\b([a-z]+(?:_[a-z]+)*)=True\b")
#: Arguments that are options of commands.
_OPTION = re.compile(
    r"\b(partition_by|older_than|merge_schema|target_rows|target_bytes|leaf_bytes|step_rows"
    r"|step_bytes|max_steps|sort_by|zorder_by|dry_run)\b"
)


def in_shell_words(message: str, table: str | None = None) -> str:
    """A message for somebody at a shell; `table` is what the command line has called the table."""
    name = "TABLE" if table is None else shlex.quote(table)

    def command(call: re.Match[str]) -> str:
        verb, *options = _CALLS[call[0]].split(" ", 1)
        return "`" + " ".join(["phalanx", verb, name, *options]) + "`"

    message = _CALL.sub(command, message).replace("` it first", "` first")
    message = message.replace("`column`", "--column")
    message = _SWITCH.sub(lambda switch: _spelled(switch[1]), message)
    return _OPTION.sub(lambda option: _spelled(option[1]), message)


def _spelled(argument: str) -> str:
    return "--" + argument.replace("_", "-")
