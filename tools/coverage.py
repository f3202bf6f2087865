"""Reads paths of .gcno files from its input, asks gcov what ran of them, and prints the share of lines that did, by folder."""

import collections
import json
import subprocess
import sys

FOLDERS = ("base", "buffers", "devices", "graphs", "interop", "kernels", "planners", "requests", "runtime", "tracing")


def counts_of(path):
    """(source, line, times) of one object."""
    command = ["gcov", "--json-format", "--stdout", path]
    output = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    for text in output.splitlines():
        for source in json.loads(text)["files"]:
            for line in source["lines"]:
                yield source["file"], line["line_number"], line["count"]


def is_host_code(source):
    return source.split("/")[0] in FOLDERS and source.endswith(".c")


def folder_of(source):
    parts = source.split("/")[:-1]
    return "/".join(parts[:2])


def main():
    ran = collections.defaultdict(lambda: collections.defaultdict(int))  # by source, by line
    for path in sys.stdin.read().split():
        for source, line, count in counts_of(path):
            if is_host_code(source):
                ran[source][line] += count
    if not ran:
        sys.exit("coverage: nothing was built with counters")
    folders = collections.defaultdict(lambda: [0, 0])
    for source in sorted(ran):
        missing = [line for line, count in sorted(ran[source].items()) if count == 0]
        for key in (folder_of(source), "all"):
            folders[key][0] += len(ran[source]) - len(missing)
            folders[key][1] += len(ran[source])
        if missing and "--lines" in sys.argv:
            print(f"{source}: {' '.join(map(str, missing))}")
    for folder in sorted(folders, key=lambda name: (name == "all", name)):
        some, every = folders[folder]
        print(f"{folder:22} {some:6} of {every:6} lines  {100.0 * some / every:5.1f}%")


main()
