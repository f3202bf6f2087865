"""Installs a wheel in a fresh environment of each of these Pythons, and runs the engine of docs/python.md there.

python3 try_wheel.py [--device cuda:0] [--system] cgr-*.whl PYTHON...    --system: the environment sees the interpreter's own packages;
                                                                        without it numpy comes from the package index
python3 try_wheel.py [--device cuda:0] --here FOLDER                    this interpreter, and the package that it has in FOLDER
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
    """The guide's engine on another device, whose memory numpy does not see: the next token is the last one."""
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
    if not (run_on_host() if device == "host" else run_on(device)):
        sys.exit(f"wrong tokens on {device}")
    size = sum(entry.stat().st_size for entry in os.scandir(inside) if entry.is_file())
    print(f"Python {platform.python_version()}: cgr {cgr.__version__} on {device} ({cgr.build_info()}), {size / 1e6:.1f} MB installed")


def run_fresh(options, python):
    with tempfile.TemporaryDirectory() as folder:
        environment = os.path.join(folder, "environment")
        system = ["--system-site-packages"] if options.system else []
        subprocess.run([python, "-m", "venv", *system, environment], check=True)
        inside = os.path.join(environment, "bin/python")
        subprocess.run([inside, "-m", "pip", "install", "-q", "--disable-pip-version-check", options.wheel], check=True)
        where = "import sysconfig; print(sysconfig.get_path('platlib'))"
        site = subprocess.run([inside, "-c", where], check=True, capture_output=True, text=True).stdout.strip()
        subprocess.run([inside, "-B", os.path.abspath(__file__), "--device", options.device, "--here", site], check=True, cwd=folder)


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
