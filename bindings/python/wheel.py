"""Makes a wheel of the stable ABI from libcgr.so, with a C compiler and Python's headers alone.

python3 wheel.py --include DIR --library libcgr.so --validation libcgr_validation.a --out FOLDER [--unpacked]

Prints the wheel's path. With --unpacked the package is put into FOLDER itself, to be imported from there. The platform of the tag is
manylinux of the newest glibc whose symbols the libraries need.
"""

import argparse
import base64
import glob
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile

import generate

HERE = os.path.dirname(os.path.abspath(__file__))
FLAGS = "-O2 -fPIC -std=c11 -D_DEFAULT_SOURCE -DPy_LIMITED_API=0x030b0000 -fvisibility=hidden -Wall -Wextra -Wshadow".split()
REQUIRES = "Requires-Python: >=3.11\nRequires-Dist: numpy>=1.23\n"


def soname(library):
    """That of libcgr.so: "libcgr.so.0.11"."""
    with open(library, "rb") as file:
        return re.search(rb"\0(libcgr\.so\.[0-9.]+)\0", file.read())[1].decode()


def version(include):
    with open(os.path.join(include, "cgr/base.h"), encoding="utf-8") as file:
        text = file.read()
    return ".".join(re.search(rf"#define CGR_VERSION_{part} (\d+)", text)[1] for part in ("MAJOR", "MINOR", "PATCH"))


def newest_glibc(libraries):
    versions = [(2, 17)]
    for library in libraries:
        with open(library, "rb") as file:
            versions += [(int(a), int(b)) for a, b in re.findall(rb"\0GLIBC_(\d+)\.(\d+)(?:\.\d+)?(?=\0)", file.read())]
    return max(versions)


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


def write_wheel(options, folder, libraries):
    number, (major, minor) = version(options.include), newest_glibc(libraries)
    tag = f"cp311-abi3-manylinux_{major}_{minor}_{platform.machine()}"
    info = f"cgr-{number}.dist-info"
    files = {f"cgr/{name}": open(os.path.join(folder, "cgr", name), "rb").read() for name in sorted(os.listdir(f"{folder}/cgr"))}
    head = f"Metadata-Version: 2.1\nName: cgr\nVersion: {number}\nSummary: The CUDA graph runtime\nLicense: Apache-2.0\n"
    files[f"{info}/METADATA"] = (head + REQUIRES).encode()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: cgr\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    record = "".join(f"{name},{digest(data)},{len(data)}\n" for name, data in files.items())
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    path = os.path.join(options.out, f"cgr-{number}-{tag}.whl")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in files.items():  # of one date, so that equal sources give equal wheels
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = (0o755 if name.endswith(".so") or ".so." in name else 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("include", "library", "validation", "out"):
        parser.add_argument("--" + name, required=True)
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
