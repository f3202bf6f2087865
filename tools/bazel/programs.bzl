"""Test files that are linked into one program. Both builds read this list; each other test file is a program of its own."""

# A pattern of files, and the program's name in the folder of these.
PROGRAMS = [
    "tests/base/*_test.cc: base_test",
    "tests/buffers/*_test.cc: buffers_test",
    "tests/requests/*_test.cc: requests_test",
    "tests/runtime/*_refused_test.cc: refused_test",
    "tests/runtime/config_*_test.cc: config_test",
]
