"""What libraries need of the system that loads them, read from the files, and the platform of a wheel that follows from it."""

import os
import re
import struct

MACHINES = {21: "ppc64le", 62: "x86_64", 183: "aarch64", 243: "riscv64"}
OLDEST = {"riscv64": (2, 27)}  # the first glibc of a machine; of all others it is older than any manylinux
FIRST_MANYLINUX = (2, 17)
# What each manylinux has, as PEP 600 and auditwheel's policies say, and cgr's libraries may need.
SYSTEM = re.compile(r"(lib(c|m|dl|rt|pthread|gcc_s)\.so\.\d+|ld-linux[-a-z0-9_]*\.so\.\d+|ld64\.so\.\d+)$")
NEWER = {"GLIBC_ABI_DT_RELR": (2, 36)}  # names without a number
PT_LOAD, PT_DYNAMIC = 1, 2
DT_NEEDED, DT_STRTAB, DT_SONAME, DT_VERNEED, DT_VERNEEDNUM = 1, 5, 14, 0x6FFFFFFE, 0x6FFFFFFF


class Library:
    """A shared library of 64 bits: `machine`, `soname`, `needed` as [name], and `versions` as {name: [version of symbols]}."""

    def __init__(self, path):
        self.path = path
        with open(path, "rb") as file:
            self.data = file.read()
        if self.data[:6] != b"\x7fELF\x02\x01":
            raise ValueError(f"{path} is no ELF file of 64 bits and the least significant byte first")
        number = self.unpack("H", 18)[0]
        self.machine = MACHINES.get(number, f"machine{number}")
        self.loaded, dynamic = [], []
        offset, (size, count) = self.unpack("Q", 32)[0], self.unpack("HH", 54)
        for at in range(offset, offset + size * count, size):
            kind, _, where, address, _, length = self.unpack("IIQQQQ", at)
            if kind == PT_LOAD:
                self.loaded.append((address, where, length))
            elif kind == PT_DYNAMIC:
                dynamic = [self.unpack("QQ", i) for i in range(where, where + length, 16)]
        tags = dict(reversed(dynamic))
        self.names = self.at(tags[DT_STRTAB])
        self.soname = self.text(tags[DT_SONAME]) if DT_SONAME in tags else os.path.basename(path)
        self.needed = [self.text(value) for tag, value in dynamic if tag == DT_NEEDED]
        self.versions = dict(self.read_versions(tags.get(DT_VERNEED), tags.get(DT_VERNEEDNUM, 0)))

    def unpack(self, form, at):
        return struct.unpack_from("<" + form, self.data, at)

    def at(self, address):
        """Where in the file that is which is loaded to an address."""
        return next(where + address - first for first, where, length in self.loaded if first <= address < first + length)

    def text(self, index):
        first = self.names + index
        return self.data[first : self.data.index(b"\0", first)].decode()

    def read_versions(self, address, count):
        at = self.at(address) if count else 0
        for _ in range(count):
            _, entries, name, first, following = self.unpack("HHIII", at)
            versions, entry = [], at + first
            for _ in range(entries):
                _, _, _, version, after = self.unpack("IHHII", entry)
                versions.append(self.text(version))
                entry += after
            yield self.text(name), versions
            at += following


def platform_of(paths):
    """manylinux of the newest glibc that these files need; linux, which promises nothing, if they need what some manylinux lacks.
    They may need each other.
    """
    libraries = [Library(path) for path in paths]
    machines = {library.machine for library in libraries}
    if len(machines) != 1:
        raise ValueError(f"libraries of {len(machines)} machines: {', '.join(sorted(machines))}")
    (machine,), own = machines, {library.soname for library in libraries}
    needed = {name for library in libraries for name in library.needed} - own
    if not all(SYSTEM.match(name) for name in needed):
        return f"linux_{machine}"
    newest = max(FIRST_MANYLINUX, OLDEST.get(machine, FIRST_MANYLINUX))
    for version in {v for library in libraries for versions in library.versions.values() for v in versions}:
        if number := re.match(r"GLIBC_(\d+)\.(\d+)", version):
            newest = max(newest, (int(number[1]), int(number[2])))
        newest = max(newest, NEWER.get(version, newest))
    return "manylinux_{}_{}_{}".format(*newest, machine)
