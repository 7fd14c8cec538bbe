/* SPDX-License-Identifier: Apache-2.0 */
/* Everything that depends on standing in front of a person: colours, bars, Ctrl-C, and the filter
 * that keeps text from files and models away from the terminal's controls. */
#include "term.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "cli.h"

/* A terminal that does what escape sequences say, and does not show them. */
static bool is_terminal(FILE *stream) {
    const char *term = getenv("TERM");
    return isatty(fileno(stream)) && term != NULL && strcmp(term, "dumb") != 0;
}

bool cli_has_colour(FILE *stream) {
    const char *no = getenv("NO_COLOR");
    return is_terminal(stream) && (no == NULL || no[0] == '\0');
}

void cli_set_style(FILE *stream, bool on, cli_style style) {
    static const char *const codes[] = {
        [CLI_PLAIN] = "\033[0m",  [CLI_BOLD] = "\033[1m", [CLI_DIM] = "\033[2m",
        [CLI_GREEN] = "\033[32m", [CLI_RED] = "\033[31m", [CLI_YELLOW] = "\033[33m",
    };
    if (on) {
        fputs(codes[style], stream);
    }
}

static bool is_control(uint32_t cp) {
    return (cp < 0x20 && cp != '\n' && cp != '\t') || (cp >= 0x7f && cp < 0xa0);
}

/* Writes the runs between control characters; `instead` stands for each of them. */
static void put_filtered(FILE *stream, const char *text, size_t n, const char *instead) {
    csn_str s = csn_str_make(text, n);
    size_t start = 0;
    size_t i = 0;
    while (i < n) {
        uint32_t cp = 0;
        size_t k = csn_utf8_decode(s, i, &cp);
        if (k != 0 && !is_control(cp)) {
            i += k;
            continue;
        }
        fwrite(text + start, 1, i - start, stream);
        fputs(instead, stream);
        i += k == 0 ? 1 : k;
        start = i;
    }
    fwrite(text + start, 1, n - start, stream);
}

void cli_put_printable(FILE *stream, const char *text, size_t n) {
    put_filtered(stream, text, n, "?");
}

void cli_put(csn_str text) {
    cli_put_printable(stdout, text.ptr, text.len);
}

void cli_put_model_text(FILE *stream, const char *text, size_t n) {
    if (isatty(fileno(stream))) {
        put_filtered(stream, text, n, "");
    } else {
        fwrite(text, 1, n, stream);
    }
}

int cli_finish_stdout(void) {
    int reason = fflush(stdout) != 0 ? errno : 0;
    if (reason != 0 || ferror(stdout)) { /* the reason of an earlier failure is not known */
        fprintf(stderr, "caisson: cannot write to standard output%s%s\n", reason != 0 ? ": " : "",
                reason != 0 ? strerror(reason) : "");
        return CLI_FAILED;
    }
    return CLI_OK;
}

/* ---- Ctrl-C ---- */

static volatile sig_atomic_t interrupts;
static volatile sig_atomic_t last_interrupt = 2; /* this one ends the process; 0 = none */

static void on_interrupt(int sig) {
    (void)sig;
    interrupts = interrupts < SIG_ATOMIC_MAX ? interrupts + 1 : interrupts;
    if (last_interrupt != 0 && interrupts >= last_interrupt) {
        static const char reset[] = "\033[0m\n";
        if (isatty(STDERR_FILENO)) {
            ssize_t k = write(STDERR_FILENO, reset, sizeof(reset) - 1);
            (void)k;
        }
        _exit(CLI_INTERRUPTED);
    }
}

void cli_catch_interrupts(void) {
    struct sigaction action;
    if (sigaction(SIGINT, NULL, &action) == 0 && action.sa_handler == SIG_IGN) {
        return; /* in the background of a script: the Ctrl-C is not meant for us */
    }
    memset(&action, 0, sizeof(action));
    action.sa_handler = on_interrupt;
    sigemptyset(&action.sa_mask);
    action.sa_flags = 0; /* no SA_RESTART: a read at a prompt must end */
    (void)sigaction(SIGINT, &action, NULL);
}

bool cli_interrupted(void) {
    return interrupts != 0;
}

void cli_forget_interrupt(void) {
    interrupts = 0;
}

void cli_interrupts_end_at(int nth) {
    last_interrupt = nth;
}

/* ---- progress ---- */

const char *cli_bytes_text(uint64_t bytes, char *buf, size_t n) {
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    double v = (double)bytes;
    unsigned u = 0;
    while (v >= 999.5 && u + 1 < sizeof(units) / sizeof(units[0])) {
        v /= 1000.0;
        u++;
    }
    snprintf(buf, n, u == 0 || v >= 99.95 ? "%.0f %s" : "%.1f %s", v, units[u]);
    return buf;
}

enum { BAR_CELLS = 30 };
static const uint64_t bar_every_ns = 100000000;   /* 0.1 s */
static const uint64_t line_every_ns = 5000000000; /* 5 s */

void cli_progress_init(cli_progress *p, const char *unit, bool quiet) {
    *p = (cli_progress){.unit = unit, .quiet = quiet, .is_bar = is_terminal(stderr)};
    p->start_ns = csn_now_ns();
}

static void amount_text(const cli_progress *p, uint64_t v, char *buf, size_t n) {
    if (strcmp(p->unit, "B") == 0) {
        cli_bytes_text(v, buf, n);
    } else {
        snprintf(buf, n, "%" PRIu64 " %s", v, p->unit);
    }
}

static void eta_text(double seconds, char *buf, size_t n) {
    uint64_t s = (uint64_t)(seconds + 0.5);
    if (s >= 3600) {
        snprintf(buf, n, "%" PRIu64 " h %02" PRIu64 " min", s / 3600, s / 60 % 60);
    } else if (s >= 60) {
        snprintf(buf, n, "%" PRIu64 " min %02" PRIu64 " s", s / 60, s % 60);
    } else {
        snprintf(buf, n, "%" PRIu64 " s", s);
    }
}

/* One line of the terminal, over the one before: what is wider than the terminal would wrap and
 * stay. The last column is left free, where some terminals wrap already. */
static void draw(const char *line) {
    struct winsize size;
    bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    fprintf(stderr, "\r\033[K%.*s", known ? size.ws_col - 1 : 79, line);
    fflush(stderr);
}

void cli_progress_show(cli_progress *p, const char *stage, uint64_t done, uint64_t total) {
    uint64_t now = csn_now_ns();
    if (strncmp(p->stage, stage, sizeof(p->stage) - 1) != 0) {
        snprintf(p->stage, sizeof(p->stage), "%s", stage);
        p->start_ns = now;
        p->first = done;
        p->is_told = false;
        p->last_ns = p->is_bar ? 0 : now;
    }
    uint64_t every = p->is_bar ? bar_every_ns : line_every_ns;
    if (p->quiet || total == 0 || (!p->is_bar && p->is_told) ||
        (now - p->last_ns < every && done < total) ||
        (!p->is_bar && now - p->start_ns < line_every_ns)) {
        return;
    }
    p->last_ns = now;
    p->is_told = done >= total;
    char a[32], b[32], eta[48] = "";
    amount_text(p, done, a, sizeof(a));
    amount_text(p, total, b, sizeof(b));
    double elapsed = (double)(now - p->start_ns) * 1e-9;
    /* What is less than a five-hundredth tells nothing. */
    if (done < total && elapsed > 0.5 && done > p->first + total / 500) {
        char left[32];
        eta_text(elapsed * (double)(total - done) / (double)(done - p->first), left, sizeof(left));
        snprintf(eta, sizeof(eta), "  ETA %s", left);
    }
    unsigned percent = (unsigned)(done >= total ? 100 : 100.0 * (double)done / (double)total);
    if (!p->is_bar) {
        fprintf(stderr, "%s: %3u%%  %s of %s%s\n", stage, percent, a, b, eta);
        return;
    }
    char bar[BAR_CELLS + 1];
    unsigned filled = percent * BAR_CELLS / 100;
    for (unsigned i = 0; i < BAR_CELLS; i++) {
        bar[i] = i < filled ? '#' : '.';
    }
    bar[BAR_CELLS] = '\0';
    char line[256];
    snprintf(line, sizeof(line), "%s [%s] %3u%%  %s of %s%s", stage, bar, percent, a, b, eta);
    draw(line);
    p->drawn = true;
}

void cli_progress_show_late(cli_progress *p, const char *stage, uint64_t done, uint64_t total) {
    if (p->stage[0] != '\0' || csn_now_ns() - p->start_ns > 1000000000u) {
        cli_progress_show(p, stage, done, total);
    }
}

void cli_progress_end(cli_progress *p) {
    if (p->drawn) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
        p->drawn = false;
    }
}

bool cli_on_progress(void *ctx, const char *stage, uint64_t done, uint64_t total) {
    cli_progress_show(ctx, stage, done, total);
    return !cli_interrupted();
}
