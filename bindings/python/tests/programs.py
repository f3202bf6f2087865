"""Programs of C that tests compare with: compiled against the library that the package has inside."""

import glob
import os
import shutil
import subprocess
import unittest

import cgr
from support import ROOT


def compile_program(folder, name):
    """The path of the program; the test is skipped where there is no compiler."""
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("cc")
    if not compiler:
        raise unittest.SkipTest("no C compiler: neither $CC nor gcc")
    library = glob.glob(os.path.join(os.path.dirname(cgr.__file__), "libcgr.so*"))[0]
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), name + ".c")
    program = os.path.join(folder, name)
    command = [compiler, "-std=c11", "-D_DEFAULT_SOURCE", "-O2", "-I", os.path.join(ROOT, "include"), source, library, "-lm"]
    subprocess.run([*command, f"-Wl,-rpath,{os.path.dirname(library)}", "-o", program], check=True)
    return program
