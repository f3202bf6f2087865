"""The library of a CMake build with CGR_SHARED_TESTS: how its sources are compiled and linked."""

import json
import os
import shlex
import subprocess

NAME = "libcgr_dev.so"
REACHED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "reached.c")


def succeeds(command, folder):
    return subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0


class Library:
    def __init__(self, root, build):
        self.root, self.build = os.path.abspath(root), os.path.abspath(build)
        self.commands, self.objects = {}, {}  # by source, as a path from the root on
        with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
            for entry in json.load(file):
                self._read(entry)
        if not self.commands:
            raise SystemExit(f"mutants: {build}/compile_commands.json has no source of cgr_objects")

    def _read(self, entry):
        words = shlex.split(entry["command"])
        output = words[words.index("-o") + 1]
        if "cgr_objects.dir/" not in output:
            return
        while os.path.basename(words[0]) == "ccache":
            words.pop(0)
        source = os.path.relpath(os.path.join(entry["directory"], entry["file"]), self.root)
        flags = words[1:words.index("-o")]
        self.compiler = words[0]
        self.commands[source] = [words[0]] + [flag for flag in flags if not flag.startswith("-W")] + ["-w", "-g0"]
        self.objects[source] = os.path.join(entry["directory"], output)

    def sources(self):
        """Those of which the host device runs something."""
        return sorted(name for name in self.commands if name.endswith(".c") and not name.startswith("devices/cuda/"))

    def text(self, source):
        with open(os.path.join(self.root, source), encoding="utf-8") as file:
            return file.read()

    def compile(self, source, path, output, options=()):
        """Whether it compiles; `path` is another file in place of the source."""
        return succeeds(self.commands[source] + list(options) + ["-o", output, "-c", path], self.build)

    def link(self, folder, replaced, options=()):
        objects = [replaced.get(source, self.objects[source]) for source in sorted(self.objects)]
        command = [self.compiler, "-shared", f"-Wl,-soname,{NAME}", "-o", os.path.join(folder, NAME)] + objects
        return succeeds(command + list(options) + ["-lm", "-lpthread"], self.build)

    def link_with_marks(self, folder, pool):
        """The library, whose functions put a mark into the file CGR_REACHED: see reached.c."""
        def compiled(source):
            output = os.path.join(folder, source.replace("/", "_") + ".o")
            if not self.compile(source, os.path.join(self.root, source), output, ["-g1", "-finstrument-functions"]):
                raise SystemExit(f"mutants: {source} does not compile")
            return source, output

        return self.link(folder, dict(pool.map(compiled, self.sources())), ["-O2", "-fPIC", REACHED])

    def functions(self, folder):
        """(address, source, name) of the functions in the library of link_with_marks."""
        command = ["nm", "--defined-only", "-l", os.path.join(folder, NAME)]
        for line in subprocess.run(command, capture_output=True, check=True, text=True).stdout.splitlines():
            words = line.replace("\t", " ").split()
            if len(words) == 4 and words[1] in "tTwW":
                yield int(words[0], 16), os.path.relpath(words[3].rsplit(":", 1)[0], self.root), words[2]
