"""The part of rules_cc that Bazel and this project load, handed on from the native rules of Bazel 4 to 6."""

load(":cc_natives.bzl", "native_cc_common", "native_cc_info")

cc_binary = native.cc_binary
cc_import = native.cc_import
cc_library = native.cc_library
cc_test = native.cc_test
cc_proto_library = native.cc_proto_library
cc_toolchain = native.cc_toolchain
cc_toolchain_suite = native.cc_toolchain_suite
fdo_prefetch_hints = native.fdo_prefetch_hints
fdo_profile = native.fdo_profile
objc_import = native.objc_import
objc_library = native.objc_library

cc_common = native_cc_common
CcInfo = native_cc_info
