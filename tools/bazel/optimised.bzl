"""Tests that compute much in their own files or in headers: they are compiled with optimisation, all others without it."""

OPTIMISED = [
    "tests/graphs/dispatch_test.cc",
    "tests/interop/fa3_cover_test.cc",
    "tests/interop/flashinfer_test.cc",
    "tests/interop/flashmla_cover_test.cc",
    "tests/interop/replay_test.cc",
    "tests/kernels/append_test.cc",
    "tests/kernels/attention_kinds_test.cc",
    "tests/kernels/attention_mixes_test.cc",
    "tests/kernels/attention_partials_test.cc",
    "tests/kernels/attention_quantised_test.cc",
    "tests/kernels/attention_test.cc",
    "tests/kernels/planner_test.cc",
    "tests/planners/plan_cover_test.cc",
    "tests/planners/plan_partials_test.cc",
    "tests/planners/plan_parts_test.cc",
    "tests/runtime/captured_inputs_test.cc",
    "tests/runtime/long_run_test.cc",
    "tests/runtime/merge_test.cc",
]
