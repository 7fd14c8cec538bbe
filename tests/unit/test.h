/* SPDX-License-Identifier: Apache-2.0 */
/* What every test file needs: cmocka in the include order it wants, and one shared error record. */
#ifndef TESTS_UNIT_TEST_H
#define TESTS_UNIT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/error.h"

/* Fails with the error's own sentence, so that a red test says what happened. */
#define ASSERT_OK(expr, err)                                                                       \
    do {                                                                                           \
        caisson_status status_ = (expr);                                                           \
        if (status_ != CAISSON_OK) {                                                               \
            char line_[1024];                                                                      \
            fail_msg("%s: %s", caisson_status_name(status_),                                       \
                     caisson_error_format((err), line_, sizeof(line_)));                           \
        }                                                                                          \
    } while (0)
#define ASSERT_STATUS(expr, code)                                                                  \
    assert_string_equal(caisson_status_name(expr), caisson_status_name(code))
#define ASSERT_STR(view, literal)                                                                  \
    do {                                                                                           \
        csn_str view_ = (view);                                                                    \
        assert_int_equal(view_.len, sizeof(literal) - 1);                                          \
        assert_memory_equal(view_.ptr, literal, sizeof(literal) - 1);                              \
    } while (0)

#endif
