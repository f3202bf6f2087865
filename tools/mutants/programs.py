"""The test programs of a build: running them against another library, and which functions of it each reaches."""

import collections
import glob
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

import library

# A mutant may fill memory or disk.
LIMITED = 'ulimit -v 33554432; ulimit -f 4194304; ulimit -c 0; exec "$0"'
TIMES_LONGER, SHORTEST_S = 5, 5.0  # a program hangs after 5 times its normal time, but not before 5 s

# reached: functions, as function_key has them, or None: not known.
Program = collections.namedtuple("Program", "name seconds reached")
Run = collections.namedtuple("Run", "verdict seconds case")  # verdict: passed, failed, hangs


def environment(folder, more=()):
    os.makedirs(os.path.join(folder, "tmp"), exist_ok=True)
    return dict(os.environ, LD_LIBRARY_PATH=folder, TEST_TMPDIR=os.path.join(folder, "tmp"), GTEST_FAIL_FAST="1", **dict(more))


def failed_case(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read(1 << 24)
    cases = re.findall(r"^\[  FAILED  \] ([^\s,]+)", text, re.M) or re.findall(r"^\[ RUN      \] (\S+)", text, re.M)[-1:]
    return cases[0] if cases else "no case"


def run(build, name, folder, seconds, more=()):
    """A program against the library in `folder`, which also gets its output, stopped after these seconds."""
    path, output = os.path.join(build, "tests", name), os.path.join(folder, name + ".txt")
    begin = time.monotonic()
    with open(output, "wb") as file:
        child = subprocess.Popen(["sh", "-c", LIMITED, path], cwd=os.path.join(build, "run"), env=environment(folder, more),
                                 stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True)
        try:
            verdict = "passed" if child.wait(seconds) == 0 else "failed"
        except subprocess.TimeoutExpired:
            verdict = "hangs"
        try:
            os.killpg(child.pid, signal.SIGKILL)  # what it has started, too
        except ProcessLookupError:
            pass
        child.wait()
    return Run(verdict, time.monotonic() - begin, "" if verdict == "passed" else failed_case(output))


def linked(build, folder):
    """The programs that take the library from the folder."""
    found, where = [], os.path.join(folder, library.NAME)
    for path in sorted(filter(lambda path: os.access(path, os.X_OK), glob.glob(os.path.join(build, "tests", "*_test")))):
        said = subprocess.run([path], env=dict(environment(folder), LD_TRACE_LOADED_OBJECTS="1"), capture_output=True, check=False).stdout
        if where.encode() + b" " in said:
            found.append(os.path.basename(path))
        elif library.NAME.encode() in said:
            raise SystemExit(f"mutants: {path} takes {library.NAME} from elsewhere, although LD_LIBRARY_PATH is {folder}")
    if not found:
        raise SystemExit(f"mutants: no program of {build}/tests links {library.NAME}, build them with -DCGR_SHARED_TESTS=ON")
    return found


def function_key(source, name):
    return source + ":" + name


def reached_functions(marks, functions):
    with open(marks, "rb") as file:
        data = file.read()
    return sorted({function_key(source, name) for address, source, name in functions if data[address // 16]})


def measure(built, pool):
    """Every program that passes: how long it takes and what it reaches."""
    folder = tempfile.mkdtemp(prefix="mutants-")
    marks, plain = os.path.join(folder, "marks"), os.path.join(folder, "plain")
    os.makedirs(marks)
    os.makedirs(plain)
    if not built.link_with_marks(marks, pool) or not built.link(plain, {}):
        raise SystemExit("mutants: the library does not link")
    functions = list(built.functions(marks))

    def measured(name):
        file = os.path.join(marks, name + ".marks")
        done = run(built.build, name, marks, 900, {"CGR_REACHED": file}.items())
        if done.verdict == "passed":
            return Program(name, done.seconds, reached_functions(file, functions)), done
        own = os.path.join(plain, name)
        os.makedirs(own)
        os.symlink(os.path.join(plain, library.NAME), os.path.join(own, library.NAME))
        done = run(built.build, name, own, 900)
        return Program(name, done.seconds, None), done

    found = list(pool.map(measured, linked(built.build, marks)))
    shutil.rmtree(folder)
    for program, done in found:
        if done.verdict != "passed":
            print(f"without a change {program.name} {done.verdict} ({done.case}), so it is left out", flush=True)
    return [program for program, done in found if done.verdict == "passed"]


def in_order(programs, change):
    """Those that reach the change: first those named for its file, then those of its folder, then the short ones."""
    place = function_key(change["file"], change["function"])
    stem = os.path.splitext(os.path.basename(change["file"]))[0]
    folder = change["file"].split("/")[0] + "_"

    def key(program):
        return not (stem in program.name and program.name.startswith(folder)), not program.name.startswith(folder), program.seconds

    return sorted((p for p in programs if p.reached is None or place in p.reached), key=key)


def limit_of(program):
    return max(SHORTEST_S, TIMES_LONGER * program.seconds)
