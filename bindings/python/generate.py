"""Writes the generated parts of the Python package from cgr's headers.

python3 generate.py INCLUDE C_FOLDER PYTHON_FOLDER      generated.h, tables.c and functions.c; enums.py, _bound.py,
                                                         _cgr.pyi and __init__.pyi
"""

import os
import sys

from generator import functions, headers, python, tables


def write(folder, name, text):
    """Only what is new, so that a build does no more than it has to."""
    path = os.path.join(folder, name)
    os.makedirs(folder, exist_ok=True)
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            if file.read() == text:
                return
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def main(include, c_folder, python_folder):
    model = headers.read(include)
    write(c_folder, "generated.h", tables.header(model))
    write(c_folder, "tables.c", tables.tables(model))
    write(c_folder, "functions.c", functions.emit(model))
    write(python_folder, "enums.py", python.enums(model))
    write(python_folder, "_bound.py", python.bound(model))
    write(python_folder, "_cgr.pyi", python.stubs(model))
    write(python_folder, "__init__.pyi", python.package_stub(model))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
