"""The docs are true: every code block of README.md and docs/ is checked.

- `python` blocks of one file run in order, in one namespace, in a process of their own whose
  working directory is empty. After `<!-- no-run -->` a block is compiled only. The files of
  `TOGETHER` share a process, and with it a Spark session.
- A `text` block directly after a `python` block that prints is what it prints, with `...` as a
  wildcard.
- `bash` and `sh` blocks may name only targets of the Makefile and extras of pyproject.toml.
- `sql` blocks after `<!-- run -->` run in the session that the blocks before call `spark`; the last
  statement's rows are compared with a `text` block. Other `sql` blocks are counted.
"""

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
import tomllib
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILES = [
    path for path in [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))] if path.is_file()
]
#: Files that run one after the other in one process, so that Spark starts once for all of them.
TOGETHER = ("README.md", "start.md", "join.md", "stream.md", "deploy.md")
TIMEOUT_SECONDS = 600

PYTHON = {"python", "py"}
SHELL = {"bash", "sh", "shell", "console"}
NO_RUN = "<!-- no-run -->"
RUN = "<!-- run -->"

OPEN_FENCE = re.compile(r"^(?P<indent>\s*)(?P<fence>`{3,}|~{3,})\s*(?P<language>[\w+-]*)[^`]*$")
OUR_EXTRAS = re.compile(r"(?<![\w.-])(?:phalanx|\.)\[(?P<extras>[^\]]*)\]")
MAKE_TARGET = re.compile(r"^(?P<target>[a-z][\w-]*)\s*:(?!=)", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block, and what stands between it and the block before."""

    language: str
    line: int  # of the first line of text, from 1
    text: str
    no_run: bool
    run: bool  # asked for; Python runs unless it is told not to
    adjacent: bool  # only blank lines since the previous block


def blocks_of(markdown: str) -> Iterator[Block]:
    lines = markdown.splitlines()
    between: list[str] = ["(start of file)"]
    number = 0
    while number < len(lines):
        opening = OPEN_FENCE.match(lines[number])
        if opening is None:
            if lines[number].strip():
                between.append(lines[number].strip())
            number += 1
            continue
        fence, indent = opening["fence"], len(opening["indent"])
        closing = re.compile(rf"^\s*{re.escape(fence[0])}{{{len(fence)},}}\s*$")
        first = number + 1
        last = next((n for n in range(first, len(lines)) if closing.match(lines[n])), None)
        if last is None:
            raise AssertionError(f"line {first}: the block is never closed")
        body = [line[min(indent, len(line) - len(line.lstrip())) :] for line in lines[first:last]]
        yield Block(
            language=opening["language"].lower(),
            line=first + 1,
            text="".join(line + "\n" for line in body),
            no_run=between[-1:] == [NO_RUN],
            run=between[-1:] == [RUN],
            adjacent=not between,
        )
        between = []
        number = last + 1


def run_blocks(path: Path) -> None:
    """Run in the child process: raises on the first block that fails."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    blocks = list(blocks_of(path.read_text(encoding="utf-8")))
    for block, after in pairwise([*blocks, None]):
        if block is None or not is_run(block):
            continue
        with contextlib.redirect_stdout(io.StringIO()) as stdout:
            if block.language in SHELL:
                run_phalanx(block)
            elif block.language == "sql":
                run_sql(block, namespace["spark"])
            else:
                # The blank lines make tracebacks point at the line of the Markdown file.
                source = "\n" * (block.line - 1) + block.text
                code = compile(source, str(path), "exec", dont_inherit=True)
                if not block.no_run:
                    exec(code, namespace)
        printed = stdout.getvalue()
        if printed and after is not None and after.language == "text" and after.adjacent:
            compare_output(after, printed)


def is_run(block: Block) -> bool:
    """Whether there is something to run in it: Python, our own command, or SQL that asks for it."""
    if block.language == "sql":
        return block.run
    if block.language in SHELL:
        return any(command[:1] == ["phalanx"] for command in commands_of(block.text))
    return block.language in PYTHON


def run_phalanx(block: Block) -> None:
    from phalanx.cli import main

    for command in commands_of(block.text):
        if command[:1] == ["phalanx"]:
            code = main(command[1:])
            assert code == 0, f"line {block.line}: {shlex.join(command)} exits with {code}"


def run_sql(block: Block, spark: Any) -> None:
    """Run the statements of a block, and print the rows of the last one."""
    *first, last = [part for part in re.split(r";\s*(?:\n|$)", block.text) if part.strip()]
    for statement in first:
        spark.sql(statement)
    rows = spark.sql(last)
    if rows.columns:
        rows.show(truncate=False)


def compare_output(expected: Block, printed: str) -> None:
    flags = doctest.ELLIPSIS | doctest.DONT_ACCEPT_BLANKLINE | doctest.DONT_ACCEPT_TRUE_FOR_1
    checker = doctest.OutputChecker()
    if not checker.check_output(expected.text, printed, flags):
        example = doctest.Example("", expected.text)
        difference = checker.output_difference(example, printed, flags | doctest.REPORT_NDIFF)
        raise AssertionError(f"line {expected.line}: the output differs\n{difference}")


def commands_of(shell: str) -> Iterator[list[str]]:
    for line in shell.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line.strip().removeprefix("$ "), posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        command: list[str] = []
        for word in lexer:
            if set(word) <= set("();<>|&"):
                yield command
                command = []
            else:
                command.append(word)
        yield command


def shell_problems(block: Block) -> Iterator[str]:
    targets = {match["target"] for match in MAKE_TARGET.finditer((ROOT / "Makefile").read_text())}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for command in commands_of(block.text):
        while command and re.match(r"^\w+=", command[0]):
            command = command[1:]
        if command[:1] == ["make"] and "-C" not in command:
            for word in command[1:]:
                if not word.startswith("-") and "=" not in word and word not in targets:
                    yield f"block at line {block.line}: the Makefile has no target '{word}'"
        if "pip" in command and "install" in command:
            for match in OUR_EXTRAS.finditer(" ".join(command)):
                for extra in re.split(r"\s*,\s*", match["extras"]):
                    if extra not in project["optional-dependencies"]:
                        yield f"block at line {block.line}: there is no extra '{extra}'"


def check_files(paths: list[Path], folder: Path) -> list[Block]:
    """Check Markdown files, running their code in `folder`; returns their blocks."""
    blocks = []
    for path in paths:
        own = list(blocks_of(path.read_text(encoding="utf-8")))
        shell = [block for block in own if block.language in SHELL]
        problems = [problem for block in shell for problem in shell_problems(block)]
        assert not problems, f"{path.name}: " + "; ".join(problems)
        blocks += own
    if any(is_run(block) for block in blocks):
        python_path = os.pathsep.join(filter(None, [f"{ROOT / 'src'}", os.getenv("PYTHONPATH")]))
        child = subprocess.run(
            [sys.executable, __file__, *map(str, paths)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": python_path},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT_SECONDS,
        )
        assert child.returncode == 0, child.stderr
    return blocks


def groups() -> list[list[Path]]:
    """The files, those together that share a process."""
    together = [path for name in TOGETHER for path in FILES if path.name == name]
    return [together, *([path] for path in FILES if path not in together)]


@pytest.mark.parametrize(
    "paths", groups(), ids=lambda paths: "+".join(str(path.relative_to(ROOT)) for path in paths)
)
def test_files(paths, tmp_path, record_property):
    blocks = check_files(paths, tmp_path)
    record_property("sql_blocks", sum(block.language == "sql" for block in blocks))


TRUE_DOCS = {
    "blocks share a namespace": "```python\na = 1\n```\ntext\n```python\nassert a == 1\n```\n",
    "output": "```python\nprint('one')\n```\n\n```text\none\n```\n",
    "output with a wildcard": (
        "```python\nprint('one\\n0.3 s\\ntwo\\nthree')\n```\n```text\none\n...\nthree\n```\n"
    ),
    "text after prose is no output": "```python\nprint(1)\n```\nprose\n```text\nother\n```\n",
    "text after silence is no output": "```python\na = 1\n```\n```text\nother\n```\n",
    "not run": "<!-- no-run -->\n```python\nraise SystemExit(3)\n```\n",
    "indented": "- a\n\n  ```python\n  if True:\n      print(1)\n  ```\n  ```text\n  1\n  ```\n",
    "a block that shows a block": "````markdown\n```python\n1 / 0\n```\n````\n",
    "targets": "```bash\n$ make test ARGS='-k a' && make setup  # both\nman make\n```\n",
    "extras": "```sh\npython -m pip install 'phalanx[spark, dev]' 'moto[server]'\n```\n",
    "our command": (
        "```python\nimport phalanx, pyarrow\n"
        "phalanx.create('t', pyarrow.schema([('a', pyarrow.int64())]), [])\n```\n"
        "```bash\nphalanx advise t\n```\n```text\n.../t: 0 leaves...\n```\n"
    ),
    "sql": (
        "```python\nclass Rows:\n    columns = ['a']\n    def show(self, truncate):\n"
        "        print(self.text)\nclass Spark:\n    def sql(self, text):\n"
        "        rows = Rows()\n        rows.text = f'<{text.strip()}>'\n        return rows\n"
        "spark = Spark()\n```\n<!-- run -->\n```sql\nSELECT 1;\nSELECT 2\n```\n"
        "```text\n<SELECT 2>\n```\n"
    ),
    "other languages": "```sql\nSELECT 1\n```\n```\n1 / 0\n```\n",
}

FALSE_DOCS = {
    "a block fails": ("```python\n\n1 / 0\n```\n", "line 3.*ZeroDivisionError"),
    "a block exits": ("```python\nraise SystemExit(0)\n```\n", "SystemExit"),
    "a later block fails": ("```python\na = 1\n```\n```python\nassert a == 2\n```\n", "line 5"),
    "no syntax": ("<!-- no-run -->\n```python\n1 +\n```\n", "SyntaxError"),
    "not run, so not defined": (
        "<!-- no-run -->\n```python\na = 1\n```\n```python\na\n```\n",
        "NameError",
    ),
    "other output": ("```python\nprint(1)\n```\n```text\n2\n```\n", "line 5: the output differs"),
    "True is not 1": ("```python\nprint(True)\n```\n```text\n1\n```\n", "the output differs"),
    "more output": ("```python\nprint('a\\nb')\n```\n```text\na\n```\n", "the output differs"),
    "an unknown target": ("```bash\nmake setup no-such\n```\n", "no target 'no-such'"),
    "an unknown extra": ("```bash\npip install -e '.[spark,none]'\n```\n", "no extra 'none'"),
    "our command fails": ("```bash\nphalanx check nowhere\n```\n", "line 2.*exits with 1"),
    "sql without a session": ("<!-- run -->\n```sql\nSELECT 1\n```\n", "KeyError: 'spark'"),
    "an open block": ("```python\na = 1\n", "never closed"),
}


@pytest.mark.parametrize("name", TRUE_DOCS)
def test_true_docs_pass(name, tmp_path):
    path = tmp_path / "doc.md"
    path.write_text(TRUE_DOCS[name], encoding="utf-8")
    check_files([path], tmp_path)


@pytest.mark.parametrize("name", FALSE_DOCS)
def test_false_docs_fail(name, tmp_path):
    markdown, message = FALSE_DOCS[name]
    path = tmp_path / "doc.md"
    path.write_text(markdown, encoding="utf-8")
    with pytest.raises(AssertionError, match=f"(?s){message}"):
        check_files([path], tmp_path)


if __name__ == "__main__":
    try:
        for name in sys.argv[1:]:
            run_blocks(Path(name))
    except BaseException:
        traceback.print_exc()
        sys.exit(1)
