"""How commands are declared: what all of them take, how they fail and what they exit with."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

import phalanx
from phalanx.cli.output import show, working
from phalanx.cli.words import in_shell_words
from phalanx.errors import PhalanxError

#: The groups of commands, in the order that `phalanx --help` lists them.
SECTIONS = ("Look", "Query", "Load", "Change", "Keep in shape", "Open")


@dataclass(frozen=True)
class NamedTable:
    """The table that a command line names."""

    name: str
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def open(self, version: str | None = None) -> phalanx.Table:
        """Open it, at its newest version or at another one."""
        return phalanx.open(self.name, version_of(version), dict(self.storage_options))


def version_of(text: str | None) -> int | str | None:
    """A version as people write it: a number, a tag or a time."""
    return int(text) if text is not None and text.isdecimal() else text


class ManyOption(click.Option):
    """An option that takes one word or more: `--sort-by a b`, or `--sort-by a --sort-by b`."""

    def __init__(self, *names: Any, **settings: Any) -> None:
        super().__init__(*names, **{"metavar": "TEXT...", **settings, "multiple": True})


class Command(click.Command):
    """A command with examples in its help."""

    #: Where `phalanx --help` lists it.
    section: str = ""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.examples = tuple(examples)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self._repeated(args))

    def _repeated(self, args: list[str]) -> list[str]:
        """The words with the name of an option of many repeated before each of its values."""
        many = {
            name for option in self.params if isinstance(option, ManyOption) for name in option.opts
        }
        words: list[str] = []
        option: str | None = None
        is_first = False
        for place, word in enumerate(args):
            if word == "--":
                return [*words, *args[place:]]
            if word.startswith("-") and len(word) > 1:
                option, is_first = (word if word in many else None), True
            elif option is not None:
                if not is_first:
                    words.append(option)
                is_first = False
            words.append(word)
        return words

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:
                    formatter.write(f"{'':{formatter.current_indent}}{example}\n")


class Program(click.Group):
    """All commands, listed by what they are for."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section in SECTIONS:
            commands = [
                (name, command.get_short_help_str(100))
                for name, command in self.commands.items()
                if getattr(command, "section", "") == section and not command.hidden
            ]
            if commands:
                with formatter.section(section):
                    formatter.write_dl(commands)


PROGRAM = Program(
    "phalanx",
    help="Partitioned Lance tables: look at them, query them, and keep them in shape.",
    epilog=(
        "TABLE is a path or a URI, such as lake/events or s3://bucket/events. "
        "'phalanx COMMAND --help' says what a command takes, with examples; "
        "'phalanx demo' makes a table to try it on."
    ),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
click.version_option(phalanx.__version__, prog_name="phalanx", message="%(prog)s %(version)s")(
    PROGRAM
)


def _pairs(ctx: click.Context, option: click.Parameter, texts: Sequence[str]) -> dict[str, str]:
    values = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise click.BadParameter("write it as KEY=VALUE")  # the value may be a secret
        values[key] = value
    return values


def pairs(*names: str, **settings: Any) -> Callable[[Any], Any]:
    """An option that is given as KEY=VALUE, any number of times."""
    settings.setdefault("metavar", "KEY=VALUE")
    return click.option(*names, multiple=True, callback=_pairs, **settings)


def many(*names: str, **settings: Any) -> Callable[[Any], Any]:
    """An option that takes one word or more."""
    return click.option(*names, cls=ManyOption, **settings)


def where_option(text: str) -> Callable[[Any], Any]:
    return click.option("--where", metavar="FILTER", help=text)


#: Numbers of things.
COUNT, POSITIVE = click.IntRange(min=0), click.IntRange(min=1)
at_option = click.option(
    "--at", "version", metavar="VERSION", help="A version, a tag, or a time such as 2025-12-31."
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Only say what would be done.")

#: What all commands take.
_STORAGE = click.Option(
    ["--storage-option"],
    metavar="KEY=VALUE",
    multiple=True,
    callback=_pairs,
    help="An option of the object store. Give secrets in its environment variables.",
)
_JSON = click.Option(["--json", "as_json"], is_flag=True, help="Print the report as JSON.")


def command(
    name: str,
    section: str,
    *,
    examples: Sequence[str] = (),
    busy: str | None = None,
    fails_if_not_ok: bool = False,
    prints_itself: bool = False,
    also: str | None = None,
    takes_table: bool = True,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare a command: a function that gets a `NamedTable` and its options and makes a report.

    Args:
        name: The name of the command.
        section: Where `phalanx --help` lists it.
        examples: Command lines for its help.
        busy: What to say while it runs, if that takes longer than a second.
        fails_if_not_ok: Whether it exits with 1 if the report is not `ok`.
        prints_itself: Whether the function prints its report, as text or as JSON (`as_json`).
        also: Another name, which is not listed.
        takes_table: Whether its first argument is a table. Otherwise the function gets the
            `storage_options` instead of a target.
    """

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(as_json: bool, storage_option: dict[str, str], **arguments: Any) -> int:
            table = None
            if takes_table:
                table = arguments.pop("table")
                arguments["target"] = NamedTable(table, storage_option)
            else:
                arguments["storage_options"] = storage_option
            if prints_itself:
                arguments["as_json"] = as_json
            try:
                with working(busy) if busy else contextlib.nullcontext():
                    report = function(**arguments)
            except PhalanxError as error:
                complain(str(error), table)
                return 1
            if not prints_itself:
                show(report, as_json, table)
            return 1 if fails_if_not_ok and not report.ok else 0

        # Decorators are applied from the last one up.
        own = list(reversed(getattr(function, "__click_params__", [])))
        first = (
            [click.Argument(["table"], metavar="TABLE", type=click.Path())] if takes_table else []
        )
        for title, is_hidden in ((name, False), (also, True)):
            if title is not None:
                made = Command(
                    title,
                    callback=run,
                    params=[*first, *own, _STORAGE, _JSON],
                    help=inspect.cleandoc(function.__doc__ or ""),
                    examples=examples,
                    hidden=is_hidden,
                )
                made.section = section
                PROGRAM.add_command(made)
        return function

    return declare


def complain(message: str, table: str | None = None) -> None:
    """Say on the standard error why a command was refused, in one sentence."""
    print(f"phalanx: {in_shell_words(message, table)}", file=sys.stderr)
