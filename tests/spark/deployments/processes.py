"""Processes that the tests start, and stop again: Spark's own, and drivers."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pyspark

ROOT = Path(__file__).resolve().parents[3]
SPARK_HOME = Path(pyspark.__file__).parent
#: What Spark's processes need to know; nothing else of the test's environment reaches them.
KEPT = ("PATH", "HOME", "JAVA_HOME", "LANG", "TMPDIR", "PHALANX_CACHE")


class Failure(Exception):
    """A statement failed; `kind` is the type of the error, and the text its message."""

    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = kind


class Driver:
    """A driver in a process of its own."""

    def __init__(self, folder, options, **env):
        self.log = folder / "driver.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.deployments.driver", json.dumps(options)],
                cwd=ROOT,
                env=environment(PYTHONPATH=f"{ROOT / 'src'}{os.pathsep}{ROOT}", **env),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._answer()

    def sql(self, text):
        """The rows of a statement, sorted; raises Failure where it fails."""
        return sorted((tuple(row) for row in self._ask(sql=text)), key=repr)

    def python(self, code):
        """What some code leaves in `result`; it has the session as `spark`."""
        return self._ask(python=code)

    def log_all(self):
        """Log at INFO. A driver in Python shows that only of loggers that are named."""
        self.python(
            "log4j = spark._jvm.org.apache.logging.log4j\n"
            "log4j.core.config.Configurator.setLevel('org.apache.spark', log4j.Level.INFO)"
        )

    def send(self, **request):
        """Start a statement without waiting for it; `wait` does."""
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def wait(self):
        return self._answer()

    def _ask(self, **request):
        self.send(**request)
        return self._answer()

    def _answer(self):
        for line in self.process.stdout:
            if line.startswith("@@"):
                found = json.loads(line[2:])
                if "error" in found:
                    raise Failure(found["error"], found["message"])
                return found.get("found")
        raise AssertionError(f"the driver ended:\n{self.log.read_text()[-4000:]}")

    def stop(self):
        self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        end(self.process)


def environment(**more):
    return {key: os.environ[key] for key in KEPT if key in os.environ} | {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        **more,
    }


def spark_process(folder, name, *command, **env):
    """Start one of Spark's own programs from pip's PySpark."""
    with (folder / f"{name}.log").open("w") as log:
        return subprocess.Popen(
            [SPARK_HOME / "bin" / command[0], *command[1:]],
            env=environment(SPARK_HOME=str(SPARK_HOME), SPARK_CONF_DIR=str(folder), **env),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def end(process):
    """End a process and what it has started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
            return


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def wait_for(condition, what, process, log, seconds=60):
    """Wait until something is so, as long as a process lives."""
    until = time.monotonic() + seconds
    while not condition():
        alive = process.poll() is None and time.monotonic() < until
        assert alive, f"{what} did not come:\n{log.read_text()[-4000:]}"
        time.sleep(0.1)


def listens(port, host="127.0.0.1"):
    with contextlib.suppress(OSError), socket.create_connection((host, port), 1):
        return True
    return False


def workers_of(process, module):
    """The Python workers that a driver's Spark has started for a worker module."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                stat = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                parents[int(entry.name)] = int(stat[1])
    found = []
    for pid in parents:
        with contextlib.suppress(OSError, KeyError):
            command = Path(f"/proc/{pid}/cmdline").read_text()
            daemon = Path(f"/proc/{parents[pid]}/cmdline").read_text()
            ours = command == daemon and "pyspark.daemon" in command and module in command
            if ours and _descends(pid, process.pid, parents):
                found.append(pid)
    return found


def _descends(pid, ancestor, parents):
    while pid in parents and pid != ancestor:
        pid = parents[pid]
    return pid == ancestor
