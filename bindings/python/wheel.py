"""Makes a wheel of the stable ABI from libcgr.so, with a C compiler and Python's headers alone.

python3 wheel.py --include DIR --library libcgr.so --validation libcgr_validation.a --out FOLDER [--licenses FILE...]
    [--unpacked]

Prints the wheel's path. With --unpacked the package is put into FOLDER itself, to be imported from there. The platform of the tag
is manylinux of the newest glibc whose symbols the libraries need (elf.py).
"""

import argparse
import base64
import glob
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile

import elf
import generate

HERE = os.path.dirname(os.path.abspath(__file__))
FLAGS = "-O2 -fPIC -std=c11 -D_DEFAULT_SOURCE -DPy_LIMITED_API=0x030b0000 -fvisibility=hidden -Wall -Wextra -Wshadow".split()
REQUIRES = "Requires-Python: >=3.11\nRequires-Dist: numpy>=1.23\n"


def read(*path):
    with open(os.path.join(*path), "rb") as file:
        return file.read()


def soname(library):
    """That of libcgr.so: "libcgr.so.0.11"."""
    return elf.Library(library).soname


def version(include):
    text = read(include, "cgr/base.h").decode()
    return ".".join(re.search(rf"#define CGR_VERSION_{part} (\d+)", text)[1] for part in ("MAJOR", "MINOR", "PATCH"))


def refuse_free_threaded():
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        sys.exit("cgr needs a Python with the GIL, and this is a free-threaded build, which has no stable ABI")


def compile_extension(options, package, generated):
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("cc") or sys.exit("no C compiler: set CC")
    headers = sysconfig.get_path("include")
    if not os.path.exists(os.path.join(headers, "Python.h")):
        sys.exit(f"no Python.h in {headers}: install Python's development files")
    sources = sorted(glob.glob(os.path.join(HERE, "src/*.c"))) + [os.path.join(generated, n) for n in ("tables.c", "functions.c")]
    folders = [f"-I{folder}" for folder in (os.path.join(HERE, "src"), generated, options.include, headers)]
    library = os.path.join(package, soname(options.library))
    shutil.copyfile(options.library, library)
    os.chmod(library, 0o755)
    out = os.path.join(package, "_cgr.abi3.so")
    linked = [library, options.validation, "-Wl,-rpath,$ORIGIN", "-pthread"]
    subprocess.run([compiler, "-shared", *FLAGS, *folders, *sources, *linked, "-o", out], check=True)
    return [out, library]


def make_package(options, folder):
    """The folder `cgr` with all that is imported. Returns its libraries."""
    refuse_free_threaded()
    package = os.path.join(folder, "cgr")
    os.makedirs(package, exist_ok=True)
    for source in glob.glob(os.path.join(HERE, "cgr/*")):
        if os.path.isfile(source):
            shutil.copyfile(source, os.path.join(package, os.path.basename(source)))
    with tempfile.TemporaryDirectory() as generated:
        generate.main(options.include, generated, package)
        return compile_extension(options, package, generated)


def digest(data):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def write_zip(path, files):
    """{name: bytes} as a wheel; its record is the last file. All of one date, so that equal sources give equal wheels."""
    record = next(name for name in files if name.endswith(".dist-info/RECORD"))
    lines = [f"{name},{digest(data)},{len(data)}\n" for name, data in files.items() if name != record]
    files[record] = "".join([*lines, f"{record},,\n"]).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = (0o755 if name.endswith(".so") or ".so." in name else 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)


def write_wheel(options, folder, libraries):
    number, tag = version(options.include), f"cp311-abi3-{elf.platform_of(libraries)}"
    info = f"cgr-{number}.dist-info"
    files = {f"cgr/{name}": read(folder, "cgr", name) for name in sorted(os.listdir(f"{folder}/cgr"))}
    head = f"Metadata-Version: 2.1\nName: cgr\nVersion: {number}\nSummary: The CUDA graph runtime\nLicense: Apache-2.0\n"
    files[f"{info}/METADATA"] = (head + REQUIRES).encode()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: cgr\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    for licence in options.licenses:
        files[f"{info}/licenses/{os.path.basename(licence)}"] = read(licence)
    files[f"{info}/RECORD"] = b""
    path = os.path.join(options.out, f"cgr-{number}-{tag}.whl")
    write_zip(path, files)
    return path


def name_platform(path):
    """Gives a wheel that another builder made the platform that its libraries need. Returns its new path."""
    with zipfile.ZipFile(path) as wheel, tempfile.TemporaryDirectory() as folder:
        files = {name: wheel.read(name) for name in wheel.namelist() if not name.endswith("/")}
        platform = elf.platform_of([wheel.extract(name, folder) for name in files if ".so" in os.path.basename(name)])
    stem, python, abi, _ = os.path.basename(path)[: -len(".whl")].rsplit("-", 3)
    tags = next(name for name in files if name.endswith(".dist-info/WHEEL"))
    files[tags] = re.sub(rb"(?m)^Tag: .*$", f"Tag: {python}-{abi}-{platform}".encode(), files[tags])
    named = os.path.join(os.path.dirname(path), f"{stem}-{python}-{abi}-{platform}.whl")
    os.remove(path)
    write_zip(named, files)
    return named


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("include", "library", "validation", "out"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--licenses", nargs="*", default=[], metavar="FILE")
    parser.add_argument("--unpacked", action="store_true")
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    if options.unpacked:
        make_package(options, options.out)
        return
    with tempfile.TemporaryDirectory() as folder:
        print(write_wheel(options, folder, make_package(options, folder)))


if __name__ == "__main__":
    main()
