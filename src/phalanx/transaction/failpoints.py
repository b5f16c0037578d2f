"""Failpoints: named steps of a change at which tests inject failures.

`PHALANX_FAILPOINT=name:raise` raises an OSError at that step, `name:kill` kills the process, and
`name:wait` waits for some seconds. A number after a second colon is the visit at which it happens
(the first by default). A folder after a second colon limits how often it happens in all processes
together: each time deletes one file in it. Without the variable a failpoint does nothing and costs
one lookup.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

_visits: dict[str, int] = {}
#: The failpoints that were reached, if a test records them; otherwise None.
passed: list[str] | None = None
_WAIT_SECONDS = 8


def reach(name: str) -> None:
    """Fail here if `PHALANX_FAILPOINT` says so."""
    if passed is not None:
        passed.append(name)
    setting = os.environ.get("PHALANX_FAILPOINT")
    if not setting:
        return
    point, action, when = (*setting.split(":", 2), "1")[:3]
    if point != name:
        return
    if not (_is_visit(name, int(when)) if when.isdigit() else _deleted_file(when)):
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


def _deleted_file(folder: str) -> bool:
    """Delete one file of a folder; False if there is none left."""
    with contextlib.suppress(FileNotFoundError):
        for entry in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, entry))
                return True
    return False
