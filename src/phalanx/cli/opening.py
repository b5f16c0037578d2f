"""Commands that open something: a Spark shell, the explorer, a demo, the completion of a shell."""

from __future__ import annotations

import code
from dataclasses import dataclass

import click
from click.shell_completion import get_completion_class

import phalanx
from phalanx.cli.app import POSITIVE, PROGRAM, NamedTable, command, pairs
from phalanx.cli.demo import Demo, run_demo
from phalanx.cli.rows import show_rows

#: The name of the variable that a shell sets to ask for completions.
_COMPLETE = "_PHALANX_COMPLETE"


@command(
    "spark",
    "Open",
    examples=[
        "phalanx spark lake",
        "phalanx spark s3://bucket/lake --master spark://host:7077 --conf spark.executor.memory=8g",
        'phalanx spark lake --sql "SELECT count(*) FROM lake.db.events"',
    ],
    takes_table=False,
    prints_itself=True,
)
@click.argument("warehouse", default="lake")
@click.option("--catalog", default="lake", show_default=True, help="What SQL calls the warehouse.")
@click.option("--master", help="The master of a cluster; by default this machine.")
@pairs("--conf", help="A conf of Spark.")
@click.option("--sql", "statement", help="Run one statement, print its rows, and stop.")
def spark(
    warehouse: str,
    catalog: str,
    master: str | None,
    conf: dict[str, str],
    statement: str | None,
    storage_options: dict[str, str],
    as_json: bool,
) -> None:
    """Open a PySpark shell with the catalog of a warehouse ready.

    In it, `spark` is the session: spark.sql("SHOW TABLES IN lake.db").show()
    """
    from phalanx.spark import session  # Spark is only for this command
    from phalanx.spark.statements import answer

    started = session(warehouse, catalog, master, conf, storage_options)
    try:
        if statement is not None:
            rows = answer(started, statement)
            show_rows(rows.to_batches(), rows.schema, as_json, rows.num_rows)
            return
        banner = (
            f"Phalanx {phalanx.__version__}, Spark {started.version}. The catalog {catalog} has "
            f"the tables under {warehouse}; 'spark' is the session."
        )
        code.interact(banner, local={"spark": started, "phalanx": phalanx}, exitmsg="")
    finally:
        started.stop()


@command(
    "explore",
    "Open",
    examples=["phalanx explore lake/events", "phalanx explore s3://bucket/events --no-browser"],
    prints_itself=True,
)
@click.option("--port", type=int, default=0, help="The port; by default one that is free.")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
def explore(target: NamedTable, port: int, no_browser: bool, as_json: bool) -> None:
    """Look at a table in the browser: partitions, history, pruning, rows.

    The page is served to this machine only, at an address with a secret in it, and only reads. It
    needs the extra 'explore': pip install 'phalanx[explore]'.
    """
    from phalanx.explore import serve  # its packages are an extra

    serve(target.open(), port=port, open_browser=not no_browser, as_json=as_json)


@command(
    "demo",
    "Open",
    examples=["phalanx demo", "phalanx demo somewhere/else"],
    busy="making a table of 200,000 events",
    takes_table=False,
)
@click.argument("folder", default="phalanx-demo")
@click.option("--rows", type=POSITIVE, default=200_000, show_default=True, help="How many events.")
def demo(folder: str, rows: int, storage_options: dict[str, str]) -> Demo:
    """Make a table of events in a folder, and show what can be done with it."""
    return run_demo(folder, rows)


@dataclass(frozen=True)
class Completion:
    """The script that teaches a shell our commands."""

    shell: str
    script: str

    def __str__(self) -> str:
        return self.script


@command(
    "completion",
    "Open",
    examples=[
        'eval "$(phalanx completion bash)"       # in ~/.bashrc',
        'eval "$(phalanx completion zsh)"        # in ~/.zshrc',
        "phalanx completion fish | source        # in config.fish",
    ],
    takes_table=False,
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str, storage_options: dict[str, str]) -> Completion:
    """Print what makes a shell complete commands and options."""
    made = get_completion_class(shell)
    assert made is not None
    return Completion(shell, made(PROGRAM, {}, "phalanx", _COMPLETE).source())
