"""A file cannot export a built-in under its own name: these names are the way round."""

native_cc_common = cc_common
native_cc_info = CcInfo
