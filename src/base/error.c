/* SPDX-License-Identifier: Apache-2.0 */
/* The error record: filling it, naming codes, printing one line. Text that came from a file is made
 * printable here, once, so that no caller has to think of terminals. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

static const char *const status_names[CAISSON_N_STATUS] = {
    [CAISSON_OK] = "Ok",
    [CAISSON_E_ARG] = "Argument",
    [CAISSON_E_NOMEM] = "OutOfMemory",
    [CAISSON_E_IO] = "Io",
    [CAISSON_E_MAGIC] = "InvalidMagic",
    [CAISSON_E_VERSION] = "UnsupportedVersion",
    [CAISSON_E_FEATURE] = "UnsupportedFeature",
    [CAISSON_E_BOUNDS] = "Bounds",
    [CAISSON_E_PARSE] = "Parse",
    [CAISSON_E_MISSING] = "MissingTensor",
    [CAISSON_E_HASH] = "Hash",
    [CAISSON_E_LIMIT] = "Limit",
    [CAISSON_E_UNSUPPORTED] = "Unsupported",
    [CAISSON_E_TEMPLATE] = "Template",
    [CAISSON_E_CONTEXT] = "ContextFull",
    [CAISSON_E_CANCELLED] = "Cancelled",
    [CAISSON_E_EXISTS] = "Exists",
    [CAISSON_E_BUSY] = "Busy",
    [CAISSON_E_SIGNATURE] = "Signature",
};

const char *caisson_status_name(caisson_status code) {
    if ((unsigned)code >= CAISSON_N_STATUS) {
        return "Unknown";
    }
    return status_names[code];
}

/* Copies s into a field of n bytes: control characters and invalid UTF-8 become '?', the cut falls
 * on a code point. */
static void put_text(char *field, size_t n, csn_str s) {
    size_t o = 0;
    size_t i = 0;
    while (i < s.len) {
        uint32_t cp;
        size_t k = csn_utf8_decode(s, i, &cp);
        if (k == 0 || cp < 0x20 || cp == 0x7f || (cp >= 0x80 && cp < 0xa0)) {
            if (o + 1 >= n) {
                break;
            }
            field[o++] = '?';
            i += k == 0 ? 1 : k;
            continue;
        }
        if (o + k >= n) {
            break;
        }
        memcpy(field + o, s.ptr + i, k);
        o += k;
        i += k;
    }
    field[o] = '\0';
}

caisson_status csn_fail(caisson_error *err, caisson_status code, const csn_fail_args *args) {
    memset(err, 0, sizeof(*err));
    err->code = code;
    err->sys_errno = args->sys_errno;
    err->has_offset = args->has_offset;
    err->offset = args->offset;
    err->n_bytes = args->n_bytes;
    put_text(err->what, sizeof(err->what), csn_str_from(args->what));
    put_text(err->file, sizeof(err->file), csn_str_from(args->file));
    put_text(err->section, sizeof(err->section), csn_str_from(args->section));
    put_text(err->tensor, sizeof(err->tensor), args->tensor);
    put_text(err->want, sizeof(err->want), args->want);
    put_text(err->got, sizeof(err->got), args->got);
    if (args->has_numbers) {
        if (err->want[0] == '\0') {
            snprintf(err->want, sizeof(err->want), "%" PRIu64, args->want_u);
        }
        if (err->got[0] == '\0') {
            snprintf(err->got, sizeof(err->got), "%" PRIu64, args->got_u);
        }
    }
    return code;
}

void csn_fail_no_memory(caisson_error *err, uint64_t bytes) {
    char text[48];
    snprintf(text, sizeof(text), "%" PRIu64 " bytes", bytes);
    (void)CSN_FAIL(err, CAISSON_E_NOMEM, .what = "out of memory", .want = csn_str_from(text));
}

void csn_error_file(caisson_error *err, const char *file) {
    if (err->file[0] == '\0') {
        put_text(err->file, sizeof(err->file), csn_str_from(file));
    }
}

void csn_error_section(caisson_error *err, const char *section) {
    if (err->section[0] == '\0') {
        put_text(err->section, sizeof(err->section), csn_str_from(section));
    }
}

void csn_error_tensor(caisson_error *err, csn_str tensor) {
    if (err->tensor[0] == '\0') {
        put_text(err->tensor, sizeof(err->tensor), tensor);
    }
}

/* snprintf at *used, which never passes n - 1. */
static void add(char *buf, size_t n, size_t *used, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static void add(char *buf, size_t n, size_t *used, const char *format, ...) {
    if (*used + 1 >= n) {
        return;
    }
    va_list ap;
    va_start(ap, format);
    int k = vsnprintf(buf + *used, n - *used, format, ap);
    va_end(ap);
    if (k > 0) {
        size_t more = (size_t)k;
        *used = more < n - *used ? *used + more : n - 1;
    }
}

const char *caisson_error_format(const caisson_error *err, char *buf, uint64_t n) {
    if (n == 0) {
        return buf;
    }
    size_t size = (size_t)n;
    size_t used = 0;
    buf[0] = '\0';
    if (err->file[0] != '\0') {
        add(buf, size, &used, "%s: ", err->file);
    }
    const char *comma = "";
    if (err->section[0] != '\0') {
        add(buf, size, &used, "%s", err->section);
        comma = ", ";
    }
    if (err->tensor[0] != '\0') {
        add(buf, size, &used, "%s%s", comma, err->tensor);
        comma = ", ";
    }
    if (err->has_offset) {
        add(buf, size, &used, "%soffset %" PRIu64, comma, err->offset);
        if (err->n_bytes != 0) {
            add(buf, size, &used, " (%" PRIu64 " bytes)", err->n_bytes);
        }
        comma = ", ";
    }
    add(buf, size, &used, "%s%s", comma[0] != '\0' ? ": " : "", err->what);
    if (err->want[0] != '\0' && err->got[0] != '\0') {
        add(buf, size, &used, " (want %s, got %s)", err->want, err->got);
    } else if (err->want[0] != '\0') {
        add(buf, size, &used, " (%s)", err->want);
    } else if (err->got[0] != '\0') {
        add(buf, size, &used, " (got %s)", err->got);
    }
    if (err->sys_errno != 0) {
        add(buf, size, &used, ": %s", strerror(err->sys_errno));
    }
    return buf;
}
