"""What Lance writes to the terminal by itself.

Its Rust half prints warnings to stderr, past Python's logging. `LANCE_LOG` says which, in the
syntax of `env_logger`, and is read once: when Lance is loaded.
"""

from __future__ import annotations

import os
import sys

_VARIABLE = "LANCE_LOG"
#: All warnings, as without it, except that a compaction has lost to another commit: that happens
#: where others write, loses nothing, and comes as an error as well. The level without a name would
#: be that of Lance's logger in Python, too, which has another.
_DEFAULT = "=warn,lance::dataset::optimize=error"


def be_quiet() -> None:
    """Keep from the terminal what no user could act upon, unless `LANCE_LOG` is set.

    It has no effect where Lance was loaded before.
    """
    if "lance" not in sys.modules:
        os.environ.setdefault(_VARIABLE, _DEFAULT)
