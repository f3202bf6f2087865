/* All parts; included once, from a C and from a C++ file. */
#ifndef CGR_TESTS_HEADERS_BODY_H
#define CGR_TESTS_HEADERS_BODY_H

#include "tests/headers/arrays.h"
#include "tests/headers/initialisers.h"
#include "tests/headers/inputs.h"
#include "tests/headers/names.h"
#include "tests/headers/outputs.h"
#include "tests/headers/ranks.h"
#include "tests/headers/recorded.h"
#include "tests/headers/steps.h"

#endif
