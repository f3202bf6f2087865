"""Tests that use exceptions, directly or through their headers. All others compile without exceptions, which is faster."""

THROWING = [
    "tests/abi/mutations_test.cc",
    "tests/abi/update_test.cc",
    "tests/examples/llama_bench_test.cc",
    "tests/examples/llama_guesses_test.cc",
    "tests/examples/llama_program_test.cc",
    "tests/tracing/dump_test.cc",
    "tests/tracing/failures_test.cc",
    "tests/tracing/labels_ids_test.cc",
    "tests/tracing/labels_test.cc",
    "tests/tracing/metrics_test.cc",
    "tests/tracing/text_test.cc",
    "tests/tracing/trace_test.cc",
]
