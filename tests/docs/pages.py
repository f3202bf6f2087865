"""The Markdown pages of the project as the tests see them: links, headings, names, blocks of code."""

import os
import posixpath
import re
import subprocess
import sys
import textwrap

sys.path.insert(0, "tools/docs")
import guide  # noqa: E402
import headers  # noqa: E402
from guide import read  # noqa: E402

FENCE = re.compile(r"^ *```(\w*)[^\n`]*\n(.*?)^ *```$", re.S | re.M)
LINKS = [re.compile(r"\]\(([^)\s]+)[^)]*\)"), re.compile(r"^ *\[[^]]+\]: *(\S+)", re.M), re.compile(r"<a [^>]*href=[\"']([^\"']+)", re.I)]
REFERENCE = re.compile(r"\]\[([^]]+)\]")
PRELUDE = re.compile(r"<!-- (?:compile: (\w+)|from: (examples/\w+\.c)) -->\n$")

# Names that pages mention but the headers do not have, each with the reason.
NO_PUBLIC_NAMES = {
    "CGR_REQUIRE_GPU": "an environment variable of the tests",
    "CGR_TEST_SEED": "an environment variable of the tests",
    "CGR_MAX_CAPABILITY": "an environment variable of the tests",
    "CGR_UPDATE_SUPPORT": "an environment variable of a test",
    "CGR_BUILD": "an environment variable of the scripts in tools/gpu/",
    "CGR_CUDA": "a setting of the build",
    "CGR_CUDA_ARCHS": "an option of CMake",
    "CGR_INSTALL": "an option of CMake",
    "CGR_WERROR": "an option of CMake",
    "CGR_PROFILES": "an option of CMake",
    "CGR_PYTHON": "an option of CMake",
    "CGR_CCACHE": "an option of CMake",
    "CGR_SANITIZER": "an option of CMake",
    "CGR_EXAMPLES": "an option of CMake",
    "CGR_NVTX": "an option of CMake",
    "CGR_SHARED_TESTS": "an option of CMake",
    "CGR_TESTS": "an option of CMake",
    "cgr_validation": "a target of the build",
    "cgr_key_padded_tokens_total": "a sample of cgr_runtime_metrics",
    "cgr_key_real_tokens_total": "a sample of cgr_runtime_metrics",
    "cgr_key_misses": "a sample of cgr_runtime_metrics",
    "cgr_key_turned_down_total": "a sample of cgr_runtime_metrics",
}


def without_code(text):
    """The page without its code blocks and code spans, in which brackets are not links."""
    return re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))


def anchors(text):
    """Those that GitHub gives a page's headings; the second of equal ones gets -1."""
    found = []
    for heading in re.findall(r"^#{1,6} (.*)$", FENCE.sub("", text), re.M):
        name = guide.slug(re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", ""))
        found.append("%s-%d" % (name, found.count(name)) if name in found else name)
    return found


def dead_links(path, text, exists, anchors_of):
    """The links to files of the project that lead nowhere."""
    text = without_code(text).replace("``", "")
    defined = {name.lower() for name in re.findall(r"^ *\[([^]]+)\]:", text, re.M)}
    dead = ["%s: [%s]: there is no such reference" % (path, name) for name in REFERENCE.findall(text) if name.lower() not in defined]
    for link in [link for pattern in LINKS for link in pattern.findall(text)]:
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        file = posixpath.normpath(posixpath.join(posixpath.dirname(path), file)) if file else path
        if not exists(file):
            dead.append("%s: %s: there is no such file, or //tests/docs:linked does not name it" % (path, link))
        elif anchor and file.endswith(".md") and anchor not in anchors_of(file):
            dead.append("%s: %s: there is no such heading" % (path, link))
    return dead


def unknown_names(path, text, known):
    """Public names that no header declares; one that ends in _ or is followed by * stands for all that begin with it."""
    unknown = []
    for found in re.finditer(r"(?<![\w/:.-])(?:cgr_[a-z0-9_]*[a-z0-9_]|CGR_[A-Z0-9_]+)(\*?)(?![\w/])", text):
        name, begin = found.group(0).rstrip("*"), found.group(1) == "*" or found.group(0).endswith("_")
        if name.startswith("cgr__") or name.startswith("CGR__") or name in NO_PUBLIC_NAMES:
            continue
        if name not in known and not (begin and any(k.startswith(name) for k in known)):
            unknown.append("%s: %s" % (path, name))
    return unknown


def unknown_fields(path, text, known, structs):
    """`cgr_config.max_row`, `config.max_row`, with a dot or an arrow: an existing struct with a field that it lacks."""
    unknown = []
    for name, field in re.findall(r"`(\w+)(?:\.|->)(\w+)", text):
        struct = name if name.startswith("cgr_") else "cgr_" + name
        if field in ("c", "cc", "cu", "h", "md"):  # a file
            continue
        if struct in structs and "%s.%s" % (struct, field) not in known:
            unknown.append("%s: %s.%s" % (path, struct, field))
    return unknown


def blocks(text):
    """The blocks of C: line, prelude or the example that the block is from, code."""
    out = []
    for found in FENCE.finditer(text):
        if found.group(1).lower() != "c":
            continue
        prelude = PRELUDE.search(text[:found.start()])
        out.append((text.count("\n", 0, found.start()) + 2, prelude.group(1) or prelude.group(2) if prelude else "file", found.group(2)))
    return out


def is_part(code, source):
    """Whether the source has these lines, one after the other, at any indentation."""
    want, lines = code.splitlines(), source.splitlines()
    return any(textwrap.dedent("\n".join(lines[i:i + len(want)])).splitlines() == want for i in range(len(lines)))


def compile_block(path, line, prelude, code, folder):
    """What the compiler says, "" if nothing. Nothing is linked: a name that no header declares is an error here already. A block that
    is from an example is compared with it: the builds compile that."""
    if prelude.endswith(".c"):
        return "" if os.path.exists(prelude) and is_part(code, read(prelude)) else "%s:%d: %s has no such lines" % (path, line, prelude)
    frame = "tests/docs/preludes/%s.c" % prelude
    if not os.path.exists(frame):
        return "%s:%d: there is no %s" % (path, line, frame)
    source = os.path.join(folder, "block.c")
    with open(source, "w", encoding="utf-8") as file:
        file.write(read(frame).replace("@BLOCK@\n", '#line %d "%s"\n%s' % (line, path, code)))
    command = os.environ.get("CC", "gcc").split() + ["-std=c11", "-D_DEFAULT_SOURCE", "-Wall", "-Wextra", "-Werror", "-Iinclude", "-I.",
                                                     "-c", source, "-o", os.path.join(folder, "block.o")]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return run.stdout.decode() if run.returncode else ""
