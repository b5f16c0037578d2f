"""What commands print, on a terminal and elsewhere."""

import os
import pty
import subprocess
import sys
import time

import pytest

import phalanx
from phalanx.cli.output import bar
from tests.cli.test_cli import environment

PHALANX = [sys.executable, "-c", "import sys, phalanx.cli; sys.exit(phalanx.cli.main())"]


def on_a_terminal(*words, **variables):
    """What a command prints where somebody looks, colors included."""
    parent, child = pty.openpty()
    env = {**environment(), "TERM": "xterm-256color", "COLUMNS": "90", **variables}
    env.pop("NO_COLOR", None) if "NO_COLOR" not in variables else None
    process = subprocess.Popen([*PHALANX, *words], stdout=child, stderr=child, env=env)
    os.close(child)
    text = b""
    while True:
        try:
            part = os.read(parent, 65536)
        except OSError:
            break
        if not part:
            break
        text += part
    assert process.wait(60) == 0, text
    os.close(parent)
    return text.decode()


def test_a_terminal_has_colors_and_a_pipe_has_none(events, run):
    assert "\x1b[36m" in on_a_terminal("describe", events.uri)
    assert "\x1b[36m" not in on_a_terminal("describe", events.uri, NO_COLOR="1")
    _, out, _ = run("describe", events.uri)
    assert "\x1b[" not in out
    assert not any(line.endswith(" ") for line in out.splitlines())


def test_hostile_values_do_nothing(tmp_path, run):
    hostile = "\x1b[2J\x1b]0;owned\x07[red]x[/red]\r\n"
    table = phalanx.create(tmp_path / "t", {"k": [hostile], "n": [1]}, ["k"])
    for command in (["head"], ["describe"], ["partitions"], ["explain"]):
        words = [*command, table.uri, *(["n > 0"] if command == ["explain"] else [])]
        _, out, _ = run(*words)
        assert "\x1b" not in out
        assert "\x07" not in out
        assert "\\x1b[2J" in out
        assert "[red]" in out  # it is not taken for markup


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "    "), (1, "████"), (2, "████"), (0.5, "██  "), (0.001, "▏   "), (0.28, "█▏  ")],
)
def test_bars(share, text):
    assert bar(share, 4) == text


def test_progress_waits_a_second(events, monkeypatch):
    from phalanx import progress
    from phalanx.cli import output

    started = []
    monkeypatch.setattr(output.Progress, "start", lambda self: started.append(self))
    monkeypatch.setattr(output, "_PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(
        output, "console", lambda to_errors=False: output.Console(force_terminal=True)
    )
    with output.working("quick"):
        pass
    assert not started
    with output.working("slow"):
        progress.begin(2, "leaves")
        progress.advance()
        until = time.monotonic() + 5
        while not started and time.monotonic() < until:
            time.sleep(0.01)
    (bar,) = started
    assert (bar.tasks[0].completed, bar.tasks[0].total) == (1, 2)


def test_completion(events):
    env = {
        **environment(),
        "_PHALANX_COMPLETE": "bash_complete",
        "COMP_WORDS": "phalanx exp",
        "COMP_CWORD": "1",
    }
    child = subprocess.run(PHALANX, env=env, capture_output=True, text=True, timeout=60)
    words = {line.split(",")[1] for line in child.stdout.splitlines()}
    assert words == {"expire", "explain", "explore", "export"}


def test_tables_are_completed_as_paths(tmp_path):
    env = {
        **environment(),
        "_PHALANX_COMPLETE": "bash_complete",
        "COMP_WORDS": "phalanx info lake",
        "COMP_CWORD": "2",
    }
    child = subprocess.run(PHALANX, env=env, capture_output=True, text=True, timeout=60)
    assert child.stdout.strip() == "file,lake"


def test_the_script_for_a_shell(run):
    code, out, _ = run("completion", "bash")
    assert code == 0
    assert "_PHALANX_COMPLETE=bash_complete" in out
