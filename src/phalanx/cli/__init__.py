"""The `phalanx` command: look at tables, query them and keep them in shape.

A command opens one table, calls a method of it and prints its report: as text, or as JSON for
machines. It exits with 1 when a call was refused, or when check or repair leave damage; with 2 when
the command line is wrong; with 130 when it is interrupted; and with 0 otherwise.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from phalanx.cli import changing, looking, opening, querying, upkeep
from phalanx.cli.app import PROGRAM
from phalanx.cli.upkeep import ShownAdvice

__all__ = ["ShownAdvice", "changing", "looking", "main", "opening", "querying", "upkeep"]

#: A shell sets this to ask for completions.
_COMPLETE = "_PHALANX_COMPLETE"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns what the process exits with.

    Raises SystemExit for a command line that is wrong, and after help was printed.
    """
    if _COMPLETE in os.environ and argv is None:
        PROGRAM.main(prog_name="phalanx", complete_var=_COMPLETE)
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        with PROGRAM.make_context("phalanx", arguments) as context:
            return int(PROGRAM.invoke(context))
    except click.exceptions.Exit as stop:
        raise SystemExit(stop.exit_code) from None
    except click.ClickException as error:
        error.show()
        raise SystemExit(error.exit_code) from None
    except (KeyboardInterrupt, click.Abort):
        print("phalanx: interrupted", file=sys.stderr)
        return 130
