"""Named places in the steps of a change, where tests make things go wrong.

`PHALANX_FAILPOINT=name:raise` raises an OSError there, `name:kill` ends the process as a power
cut would. A number after a second colon says at which visit. Without the variable a failpoint
costs a look-up and does nothing.
"""

from __future__ import annotations

import os
import signal

_visits: dict[str, int] = {}
#: Where a test looks which failpoints a change comes by; None as long as nobody does.
passed: list[str] | None = None


def reach(name: str) -> None:
    """Arrive at a failpoint."""
    if passed is not None:
        passed.append(name)
    wanted = os.environ.get("PHALANX_FAILPOINT")
    if not wanted:
        return
    point, action, visit = (*wanted.split(":"), "1")[:3]
    if point != name:
        return
    _visits[name] = _visits.get(name, 0) + 1
    if _visits[name] != int(visit):
        return
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise OSError(f"failpoint {name}")
