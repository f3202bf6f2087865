"""What the tests of profiles/ share: where things are, how the scripts are run, and a folder for each test."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

PROFILES = pathlib.Path("profiles").resolve()
RESULTS = PROFILES / "results"
sys.path.insert(0, str(PROFILES / "report"))


def run(*command, **options):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=300, check=False, **options)


def report(*arguments):
    return run(sys.executable, "-B", PROFILES / "report" / "report.py", *arguments)


class Folder(unittest.TestCase):
    """Tests with their own folder, whose name has a space."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="cgr report "))
        self.addCleanup(shutil.rmtree, self.folder)

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path
