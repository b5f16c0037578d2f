"""Named places in the steps of a change, where tests make things go wrong.

`PHALANX_FAILPOINT=name:raise` raises an OSError there, `name:kill` ends the process as a power
cut would, `name:wait` stays there for some seconds. A number after a second colon says at which
visit. A folder there says how often, among all processes: each time takes a file away from it.
Without the variable a failpoint costs a look-up and does nothing.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

_visits: dict[str, int] = {}
#: Where a test looks which failpoints a change comes by; None as long as nobody does.
passed: list[str] | None = None
_WAIT_SECONDS = 8


def reach(name: str) -> None:
    """Arrive at a failpoint."""
    if passed is not None:
        passed.append(name)
    wanted = os.environ.get("PHALANX_FAILPOINT")
    if not wanted:
        return
    point, action, when = (*wanted.split(":", 2), "1")[:3]
    if point != name:
        return
    if not (_is_visit(name, int(when)) if when.isdigit() else _took_one(when)):
        return
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if action == "wait":
        time.sleep(_WAIT_SECONDS)
        return
    raise OSError(f"failpoint {name}")


def _is_visit(name: str, number: int) -> bool:
    _visits[name] = _visits.get(name, 0) + 1
    return _visits[name] == number


def _took_one(folder: str) -> bool:
    with contextlib.suppress(FileNotFoundError):
        for entry in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, entry))
                return True
    return False
