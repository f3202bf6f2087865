#!/usr/bin/env python3
"""The proof of buffers/PROTOCOL.md by spin: step.pml holds as it is, and without any one of the guards it does not.

Runs anywhere: protocol_test.py            every configuration, one line each
               protocol_test.py NO_GUARD   this guard alone, with what happens without it, event by event
"""

import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

MODEL = os.path.dirname(os.path.abspath(__file__))
FILES = ["step.pml", "memory.pml", "device.pml", "host.pml"]

# The host does not know that the device has lost its batch layout. The device refuses what it sends then, and must act on nothing
# else.
FORGETS = "-DNO_HOST_BATCH_ZERO -DNO_RESEND_BATCH -DANY_REFUSAL"
STRAY = "-DSTRAY -DTROUBLES=0"

# What must hold. The first four are searched by a program that is worth optimising: otherwise compiling takes longer than searching.
FOUR_STEPS = "four steps"
TWO_EDITS = "two edits"
ENDLESS = "every run ends"
PROOFS = [
    (FOUR_STEPS, "-DDEPTH=3 -DSTEPS=4"),
    (FOUR_STEPS, "-DDEPTH=2 -DSTEPS=4"),
    (TWO_EDITS, "-DDEPTH=3 -DSTEPS=3 -DEDITINGS=2"),
    (TWO_EDITS, "-DDEPTH=2 -DSTEPS=3 -DEDITINGS=2"),
    ("two troubles", "-DDEPTH=3 -DSTEPS=3 -DTROUBLES=2 -DEDITINGS=0"),
    ("two troubles", "-DDEPTH=2 -DSTEPS=3 -DTROUBLES=2 -DEDITINGS=0"),
    (ENDLESS, "-DDEPTH=3 -DSTEPS=3 -DEDITINGS=0"),
    (ENDLESS, "-DDEPTH=2 -DSTEPS=3 -DEDITINGS=0"),
    ("a host that forgets losses", "-DDEPTH=3 " + FORGETS),
    ("a host that forgets losses", "-DDEPTH=2 " + FORGETS),
    ("a step never prepared", "-DDEPTH=3 " + STRAY),
    ("a step never prepared", "-DDEPTH=2 " + STRAY),
]

# Properties, by what spin says of the one that does not hold.
TORN = "acts on a torn, stale or cancelled ring slot"
DAMAGED = "acts on a damaged ring slot"
LAYOUT = "acts on another batch layout"
ROW = "acts on other lengths or pages"
REFUSED = "refuses an intact ring slot"
UNKNOWN = "a loss is not known when its step has completed"
RESULT = "a result is that of another step"
GONE = "a result is gone too early"
FOREVER = "a loss is never made good"
UNENDING = "a run never ends"
LAST = "a loss is not made good, or a step never prepared is not noticed"
PROPERTIES = [
    (r"promised_tag", TORN),
    (r"head>>15\)&3\)!=1", DAMAGED),
    (r"layout==promised_layout", LAYOUT),
    (r"table_[ab]==promised_[ab]", ROW),
    (r"assertion violated strayed|<losses", REFUSED),
    (r"generation_word>=losses_at", UNKNOWN),
    (r"found_record", RESULT),
    (r"launched-previous", GONE),
    (r"n<=", FOREVER),
    (r"last_accepted", LAST),
    (r"invalid end state", "a step never completes"),
    (r"non-progress", UNENDING),
]

# What each guard is, what goes wrong without it, and in which surroundings.
GUARDS = [
    ("NO_SLOT_FREE", "a ring slot is free once the step that used it has completed", TORN, "-DSTEPS=3 -DANY_REFUSAL"),
    ("NO_LATE_COMMIT", "the number is stored at launch, not at prepare", TORN, ""),
    ("NO_COMMIT_RELEASE", "the number is stored with release", TORN, ""),
    ("NO_LAUNCH_ORDER", "a launch comes after the host's stores", REFUSED, ""),
    ("NO_FETCH_ACQUIRE", "the fetch acquires the number before it reads on", TORN, ""),
    ("NO_FETCH_NUMBER", "the fetch copies no ring slot with another number", TORN, ""),
    ("NO_INBOX_NUMBER_LAST", "the inbox gets the number after what the fetch checks", TORN, ""),
    ("NO_FETCH_JOIN", "the epilogue waits for the fetch", TORN, ""),
    ("NO_INBOX_NUMBER", "the inbox is read only with the step's number", REFUSED, ""),
    ("NO_NUMBER", "another number in the ring slot is refused", TORN, STRAY),
    ("NO_GENERATION", "another generation is refused", ROW, "-DANY_REFUSAL"),
    ("NO_QUIET_REFUSAL", "the refusal of a generation loses nothing further", REFUSED, "-DSTEPS=3"),
    ("NO_COUNTS", "counts and batch layouts are checked", DAMAGED, ""),
    ("NO_STANDING", "another batch_seq is refused", LAYOUT, FORGETS),
    ("NO_EMPTY_BATCH_ZERO", "an empty step leaves batch_seq 0", LAYOUT, FORGETS),
    ("NO_REFUSED_BATCH_ZERO", "a refused step leaves batch_seq 0", LAYOUT, FORGETS),
    ("NO_HOST_BATCH_ZERO", "after an internal step the whole batch is sent", REFUSED, ""),
    ("NO_STANDING_BASE", "edits are sent only after a step of the standing batch", LAYOUT, ""),
    ("NO_CHANGE_STEP_BATCH", "after change steps the whole batch is sent", REFUSED, "-DDEPTH=3"),
    ("NO_EDITS_KEPT", "edits are dirty until a launch has carried them", LAYOUT, ""),
    ("NO_RESTORE", "changes are dirty again after a cancelled or failed step", ROW, ""),
    ("NO_LENGTH_RESENT", "lengths are sent again when a failed launch ran", ROW, ""),
    ("NO_USED_UP", "a failed launch uses its number up", TORN, ""),
    ("NO_RECOVERY_WAIT", "a failed launch is waited for", TORN, ""),
    ("NO_EMPTY", "an empty step reads no ring slot", TORN, ""),
    ("NO_ABANDON", "the epilogue of a step that was given up commits nothing", ROW, ""),
    ("NO_LOSS_COUNT", "losses are counted", REFUSED, ""),
    ("NO_RESEND_CHANGES", "after a loss all rows are sent again", ROW, ""),
    ("NO_RESEND_BATCH", "after a loss the batch layout is sent again", REFUSED, ""),
    ("NO_COMPLETED_LAST", "completed_seq comes after the result", RESULT, ""),
    ("NO_GENERATION_FIRST", "the generation comes before completed_seq", UNKNOWN, ""),
    ("NO_RESULT_RELEASE", "completed_seq is stored with release", RESULT, ""),
    ("NO_RESULT_ACQUIRE", "the host acquires completed_seq before it reads the result", RESULT, ""),
    ("NO_EXPIRY", "a result is refused once its readback slot is used again", RESULT, "-DSTEPS=3"),
    ("NO_DEPTH_RULE", "a launch with change steps takes at most depth - 1 ring slots", GONE, ""),
    ("NO_DEATH", "a step that was never launched makes the runtime dead", LAST, STRAY),
    ("RACES", "no commit races with a step never prepared", TORN, STRAY),
    ("NO_END", "no engine cancels steps for ever", UNENDING, "-DEDITINGS=0"),
]


def compiler():
    return os.environ.get("CC") or "gcc"


def check(flags, scratch, proof=""):
    """(states, the property that does not hold or None, folder) of the model with these flags. `proof`: which of PROOFS it is like."""
    folder = tempfile.mkdtemp(dir=scratch)
    for file in FILES:
        shutil.copy(os.path.join(MODEL, file), folder)

    def run(*command):
        done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} ends with {done.returncode}, expected 0:\n{done.stdout}")
        return done.stdout

    run("spin", *flags.split(), "-a", "step.pml")
    kind = "-DNP" if proof == ENDLESS else "-DSAFETY"
    run(*compiler().split(), "-O1" if proof in (FOUR_STEPS, TWO_EDITS) else "-O0", "-w", "-DCOLLAPSE", "-DNOFAIR", kind, "-o", "pan", "pan.c")
    text = run("./pan", "-m20000", "-w20", *(["-l"] if proof == ENDLESS else []))
    states = re.search(r"(\d+) states, stored", text)
    errors = re.search(r"errors: (\d+)", text)
    if not states or not errors or "max search depth too small" in text or "out of memory" in text:
        raise RuntimeError(f"the search with {flags} does not end:\n{text}")
    failure = None
    if int(errors[1]) > 0:
        words = re.search(r"^pan:\d+: (.*?) \(at depth", text, re.MULTILINE)
        failure = next((name for pattern, name in PROPERTIES if words and re.search(pattern, words[1])), text)
    return int(states[1]), failure, folder


def guard_flags(guard, surroundings):
    depth = "" if "-DDEPTH" in surroundings else "-DDEPTH=2 "
    steps = "" if "-DSTEPS" in surroundings else "-DSTEPS=2 "
    return f"{depth}{steps}{surroundings} -D{guard}"


def prove(name, flags, scratch):
    began = time.monotonic()
    states, failure, _ = check(flags, scratch, name)
    verdict = "holds" if failure is None else "DOES NOT HOLD: " + failure
    return failure is None, f"{states:8d} states {time.monotonic() - began:5.1f} s  {name}, {flags}: {verdict}"


def remove(guard, words, expected, surroundings, scratch):
    began = time.monotonic()
    states, failure, _ = check(guard_flags(guard, surroundings), scratch, ENDLESS if expected == UNENDING else "")
    verdict = failure if failure == expected else f"{failure}, EXPECTED: {expected}"
    return failure == expected, f"{states:8d} states {time.monotonic() - began:5.1f} s  {guard}, without '{words}': {verdict}"


def guards_of_model():
    guards = set()
    for name in FILES:
        with open(os.path.join(MODEL, name), encoding="utf-8") as file:
            guards.update(re.findall(r"(?:#ifn?def |defined\()(NO_\w+|RACES)", file.read()))
    return guards


def check_all(scratch):
    began = time.monotonic()
    differ = guards_of_model() ^ {guard[0] for guard in GUARDS}
    if differ:
        print(f"guards of the model and of GUARDS differ: {', '.join(sorted(differ))}")
        return 1
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(prove, *proof, scratch) for proof in PROOFS]
        jobs += [pool.submit(remove, *guard, scratch) for guard in GUARDS]
        results = []
        for job in jobs:
            results.append(job.result())
            print(results[-1][1], flush=True)
    failed = sum(not good for good, _ in results)
    print(f"{len(results)} configurations, {failed} failed, {time.monotonic() - began:.1f} s")
    return 1 if failed else 0


def show(name, scratch):
    """Each event until the property does not hold."""
    found = [guard for guard in GUARDS if guard[0] == name]
    if not found:
        sys.exit(f"protocol_test.py: guard is {name}, expected one of {', '.join(guard[0] for guard in GUARDS)}")
    guard, words, expected, surroundings = found[0]
    flags = guard_flags(guard, surroundings)
    _, failure, folder = check(flags, scratch, ENDLESS if expected == UNENDING else "")
    print(f"{guard}, without '{words}':")
    trail = subprocess.run(["spin", *flags.split(), "-t", "-T", "step.pml"], cwd=folder, stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, text=True, check=False)
    for line in trail.stdout.splitlines():
        if re.match(r"\s*((host|prologue|fetch|epilogue): |a step is launched)", line):
            print("  " + line.strip())
    print(f"  and then: {failure}")
    return 0


def main():
    for tool in ("spin", compiler().split()[0]):
        if not shutil.which(tool):
            sys.exit(f"protocol_test.py: no {tool} in PATH, expected Debian's packages spin and gcc")
    with tempfile.TemporaryDirectory() as scratch:
        sys.exit(show(sys.argv[1], scratch) if len(sys.argv) > 1 else check_all(scratch))


if __name__ == "__main__":
    main()
