"""The explorer: a table in the browser, served to this machine only, and only to look at.

`views` answers questions about a table with plain values, `server` puts them behind an address,
and `static/` is the page: HTML, CSS and JavaScript as they are, without a build step.
"""

from __future__ import annotations

from phalanx.errors import PhalanxError
from phalanx.table.table import Table


def serve(table: Table, *, port: int = 0, open_browser: bool = True, as_json: bool = False) -> None:
    """Serve the explorer of a table until it is interrupted; prints its address first.

    Raises PhalanxError where the packages of the extra `explore` are missing, or the port is taken.
    """
    try:
        from phalanx.explore.server import run
    except ImportError:
        raise PhalanxError(
            "the explorer needs Starlette and uvicorn: pip install 'phalanx[explore]' brings them"
        ) from None
    run(table, port, open_browser, as_json)
