load("//cc:cc_natives.bzl", "native_cc_common")

cc_common = native_cc_common
