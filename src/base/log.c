/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

void csn_log_line(const csn_log *log, csn_log_level level, const char *format, ...) {
    if (log == NULL || log->fn == NULL || level > log->level) {
        return;
    }
    char line[1024]; /* a longer line is cut */
    va_list ap;
    va_start(ap, format);
    vsnprintf(line, sizeof(line), format, ap);
    va_end(ap);
    log->fn(log->ctx, level, line);
}
