"""Installs a wheel in a fresh environment of each of these Pythons, and runs the engine of docs/python.md there.

python3 try_wheel.py [--device cuda:0] [--system] cgr-*.whl PYTHON...
python3 try_wheel.py [--device cuda:0] --here FOLDER                     this interpreter, and the package that it has in FOLDER

With --system the environment sees the interpreter's own packages; without it, numpy comes from the package index.
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile

ROOT = os.environ.get("CGR_ROOT") or os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../.."))


def lines_of_guide():
    with open(os.path.join(ROOT, "docs/python.md"), encoding="utf-8") as file:
        return file.read().split("```python\n")[1].split("```")[0]


def run_on_host():
    """Generates 42 to 46, as the guide's model adds 1."""
    import numpy as np

    import cgr

    tokens = []
    exec(compile(lines_of_guide(), "docs/python.md", "exec"), {"cgr": cgr, "np": np, "tokens": tokens})
    return tokens == [42, 43, 44, 45, 46]


def run_on(name):
    """The same on any device, also where numpy does not see the memory: the next token is the last one."""
    import cgr

    with cgr.Device(name) as device, device.stream() as stream:
        runtime = cgr.Runtime(device=device, groups=[cgr.Group(num_pages=8)], max_requests=4, max_tokens=16, max_seq_len=96)

        def record(recorder):
            info = recorder.info()
            ids, sampled = (recorder.buffer(b).data for b in (cgr.Buffer.INPUT_IDS, cgr.Buffer.NEXT_TOKENS))
            device.copy(sampled, ids, 4 * info.num_requests, info.stream)

        runtime.capture(record)
        row = runtime.request_open(tag=7)
        runtime.request_set_pages(row, group=0, first=0, pages=[2])
        batch, tokens = cgr.Batch(rows=[row], tokens=[41]), []
        for _ in range(5):
            step = runtime.prepare(batch)
            step.launch(stream)
            replayed = step.key.kind == cgr.GraphKind.FULL
            tokens.append(replayed and step.wait().tokens[0])
            batch.tokens = None
    return tokens == [41] * 5


def run_here(device, folder):
    import cgr

    inside = os.path.dirname(os.path.abspath(cgr.__file__))
    if os.path.realpath(inside) != os.path.realpath(os.path.join(folder, "cgr")):
        sys.exit(f"cgr is imported from {inside}, expected {folder}")
    if (device == "host" and not run_on_host()) or not run_on(device):
        sys.exit(f"wrong tokens on {device}")
    size = sum(entry.stat().st_size for entry in os.scandir(inside) if entry.is_file())
    print(f"Python {platform.python_version()}: {cgr.build_info()}; on {device}; {size / 1e6:.1f} MB installed")


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


SITE = "import sysconfig; print(sysconfig.get_path('platlib'))"


def run_fresh(options, python):
    with tempfile.TemporaryDirectory() as folder:
        inside = os.path.join(folder, "environment/bin/python")
        pip = ["-m", "pip", "--disable-pip-version-check"]
        if options.system:  # also where the interpreter is that of an environment, or has no ensurepip
            output(python, "-m", "venv", "--without-pip", os.path.join(folder, "environment"))
            theirs = output(python, "-c", "import sys; print(*sys.path, sep=chr(10))")
            with open(os.path.join(output(inside, "-c", SITE).strip(), "theirs.pth"), "w", encoding="utf-8") as file:
                file.write(theirs)
            output(python, *pip, "--python", inside, "install", "-q", "--no-index", "--no-deps", options.wheel)
        else:
            output(python, "-m", "venv", os.path.join(folder, "environment"))
            output(inside, *pip, "install", "-q", options.wheel)
        site = output(inside, "-c", SITE).strip()
        command = [inside, "-B", os.path.abspath(__file__), "--device", options.device, "--here", site]
        subprocess.run(command, check=True, cwd=folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", nargs="?")
    parser.add_argument("pythons", nargs="*", metavar="PYTHON")
    parser.add_argument("--device", default="host")
    parser.add_argument("--system", action="store_true")
    parser.add_argument("--here", metavar="FOLDER")
    options = parser.parse_args()
    if options.here:
        run_here(options.device, options.here)
    elif not options.pythons:
        parser.error("expected a wheel and Pythons")
    else:
        options.wheel = os.path.abspath(options.wheel)
        for python in options.pythons:
            run_fresh(options, python)


if __name__ == "__main__":
    main()
