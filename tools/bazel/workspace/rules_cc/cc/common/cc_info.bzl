load("//cc:cc_natives.bzl", "native_cc_info")

CcInfo = native_cc_info
