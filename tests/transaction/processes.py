"""Real processes for tests: they start fast, run at once, and can be killed."""

import multiprocessing
import time
import traceback
import warnings

# A server that has imported everything once forks each process. It never touches Lance itself,
# so nothing is inherited but modules: Lance warns of a fork that cannot hurt here.
warnings.filterwarnings("ignore", "lance is not fork-safe")
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["phalanx.table.table", "tests.transaction.processes"])


def start(function, *args):
    """Start a function in a process of its own."""
    process = CONTEXT.Process(target=function, args=args, daemon=True)
    process.start()
    return process


def together(*calls, seconds=120):
    """Run calls, each a function and its arguments, in processes at once; their results."""
    ready = CONTEXT.Barrier(len(calls))
    running = []
    for function, *args in calls:
        ours, theirs = CONTEXT.Pipe()
        running.append((start(_report, theirs, ready, function, args), ours))
    deadline = time.monotonic() + seconds
    results = []
    try:
        for process, answers in running:
            assert answers.poll(max(0, deadline - time.monotonic())), "a process hangs"
            ok, result = answers.recv()
            assert ok, result
            results.append(result)
            process.join(5)
    finally:
        for process, _ in running:
            process.kill()
    return results


def _report(answers, ready, function, args):
    try:
        ready.wait(60)
        answers.send((True, function(*args)))
    except BaseException:
        answers.send((False, traceback.format_exc()))


class Background:
    """Functions that run beside a test, again and again until it is over."""

    def __init__(self, *calls):
        self._stop = CONTEXT.Event()
        self._running = []
        for function, *args in calls:
            ours, theirs = CONTEXT.Pipe()
            self._running.append((start(_repeat, theirs, self._stop, function, args), ours))
        self.results = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stop.set()
        try:
            for process, answers in self._running:
                assert answers.poll(60), "a process in the background hangs"
                ok, result = answers.recv()
                assert ok, result
                self.results.append(result)
                process.join(5)
        finally:
            for process, _ in self._running:
                process.kill()


def _repeat(answers, stop, function, args):
    results = []
    try:
        while not stop.is_set():
            results.append(function(*args))
        answers.send((True, results))
    except BaseException:
        answers.send((False, traceback.format_exc()))
