/* SPDX-License-Identifier: Apache-2.0 */
/* What the library does, told to whoever asked (off by default). Errors never go here. */
#ifndef CSN_BASE_LOG_H
#define CSN_BASE_LOG_H

typedef enum csn_log_level { CSN_LOG_WARN = 1, CSN_LOG_INFO, CSN_LOG_DEBUG } csn_log_level;

typedef struct csn_log {
    void (*fn)(void *ctx, csn_log_level level, const char *line); /* NULL = silent */
    void *ctx;
    csn_log_level level; /* lines above it are not formatted */
} csn_log;

/* `log` may be NULL. */
void csn_log_line(const csn_log *log, csn_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#define CSN_WARN(log, ...) csn_log_line((log), CSN_LOG_WARN, __VA_ARGS__)
#define CSN_INFO(log, ...) csn_log_line((log), CSN_LOG_INFO, __VA_ARGS__)

#endif
