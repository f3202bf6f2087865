#!/usr/bin/env python3
"""Makes small mistakes in the library's host sources, one at a time, and says which of them no test notices:

  cmake --preset host -DCGR_SHARED_TESTS=ON -DCGR_PROFILES=OFF && cmake --build --preset host   # once
  tools/mutants/run.py build/host                                                               # 300 mutants with seed 1

A mutant is a library of its own. The test programs that reach the function run with it, by LD_LIBRARY_PATH, until one fails or takes five
times as long as before. One line tells of each mutant, the last sums up: killed, survived, equal (the object code is the same), broken
(it does not compile), gone (its text is no longer there), unfinished (--seconds were over). The same seed and sources make the same mutants.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import random
import shutil
import sys
import tempfile
import time

import library
import places
import programs


def choose(built, count, seed):
    """As many mutants of each kind, as far as there are places for them."""
    chance = random.Random(seed)
    by_kind = collections.defaultdict(list)
    for source in built.sources():
        text = built.text(source)
        for place in places.places_of(text):
            by_kind[place.kind].append((source, text, place))
    for kind in sorted(by_kind):
        chance.shuffle(by_kind[kind])
    chosen = []
    while len(chosen) < count and any(by_kind.values()):
        for kind in sorted(by_kind):
            if by_kind[kind]:
                source, text, place = by_kind[kind].pop()
                chosen.append(places.remember(source, text, place, chance.choice(place.changes)))
    chosen = chosen[:count]
    chance.shuffle(chosen)
    return chosen


def read_or_write(path, make):
    if path and os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    made = make()
    write(path, made)
    return made


def write(path, changes):
    if path:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(changes, file, indent=1)
            file.write("\n")


def build_mutant(built, change, folder):
    """What is wrong with it, or None: its library is in the folder."""
    text = built.text(change["file"])
    changed = places.apply(text, change)
    if changed is None:
        return "gone"
    # The name of the source is in the object.
    path = os.path.join(folder, os.path.basename(change["file"]))
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    before, after = os.path.join(folder, "before.o"), os.path.join(folder, "after.o")
    built.compile(change["file"], path, before)
    with open(path, "w", encoding="utf-8") as file:
        file.write(changed)
    if not built.compile(change["file"], path, after):
        return "broken"
    with open(before, "rb") as one, open(after, "rb") as other:
        if one.read() == other.read():
            return "equal"
    return None if built.link(folder, {change["file"]: after}) else "broken"


def judge(built, tests, change, deadline):
    """The verdict in a word, and more about it."""
    folder = tempfile.mkdtemp(prefix="mutant-")
    try:
        wrong = build_mutant(built, change, folder)
        if wrong:
            return wrong, ""
        reaching = programs.in_order(tests, change)
        for number, program in enumerate(reaching, 1):
            limit = programs.limit_of(program)
            done = programs.run(built.build, program.name, folder, min(limit, max(deadline - time.monotonic(), 0.01)))
            if done.verdict == "failed" or (done.verdict == "hangs" and done.seconds >= limit):
                hangs = " which hangs" if done.verdict == "hangs" else ""
                return "killed", f" by {program.name} ({done.case}){hangs}, program {number} of {len(reaching)}"
            if time.monotonic() >= deadline:
                return "unfinished", f" after {number - 1} of {len(reaching)} programs"
        return "survived", f", reached by {len(reaching)} of {len(tests)} programs"
    finally:
        shutil.rmtree(folder)


def describe(change, verdict, more):
    old, new = (" ".join(change[key].split()) for key in ("old", "new"))
    old = old if len(old) <= 60 else old[:57] + "..."
    new = new if len(new) <= 60 else new[:57] + "..."
    return f"{change['file']}:{change['line']} {change['kind']}: `{old}` -> `{new}`: {verdict}{more}"


def arguments(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", help="the build folder")
    parser.add_argument("--root", default=".", help="the project's root")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="mutants at once")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for all of it")
    parser.add_argument("--shard", default="1/1", help="I/N: the I-th of N parts of the list")
    parser.add_argument("--list", help="JSON: read if it exists, else written")
    parser.add_argument("--measured", help="JSON of what the programs reach and how long they take: read if it exists, else written")
    parser.add_argument("--survivors", help="JSON: where to write the list of mutants that survived, to repeat them with --list")
    return parser.parse_args(words)


def judge_all(built, tests, changes, deadline, pool):
    counts, survivors = collections.Counter(), []

    def judged(change):
        if time.monotonic() >= deadline:
            return change, "unfinished", " before it began"
        return (change,) + judge(built, tests, change, deadline)

    for done in concurrent.futures.as_completed([pool.submit(judged, change) for change in changes]):
        change, verdict, more = done.result()
        counts[verdict] += 1
        if verdict == "survived":
            survivors.append(change)
        print(describe(change, verdict, more), flush=True)
    return counts, survivors


def main(words):
    given = arguments(words)
    begin = time.monotonic()
    built = library.Library(given.root, given.build)
    changes = read_or_write(given.list, lambda: choose(built, given.count, given.seed))
    part, parts = map(int, given.shard.split("/"))
    changes = changes[part - 1::parts]
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        tests = [programs.Program(*t) for t in read_or_write(given.measured, lambda: programs.measure(built, pool))]
        print(f"{len(tests)} programs take {sum(t.seconds for t in tests):.0f} s, measured in {time.monotonic() - begin:.0f} s", flush=True)
        counts, survivors = judge_all(built, tests, changes, begin + given.seconds, pool)
    write(given.survivors, survivors)
    told = ", ".join(f"{counts[verdict]} {verdict}" for verdict in ("killed", "survived", "equal", "broken", "gone", "unfinished"))
    print(f"{len(changes)} mutants in {time.monotonic() - begin:.0f} s: {told}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
