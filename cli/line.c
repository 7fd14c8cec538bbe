/* SPDX-License-Identifier: Apache-2.0 */
/* The only file that knows libedit. Its own way of reading would start again after a signal, so
 * bytes are read here: Ctrl-C ends the line. */
#include "line.h"

#include <errno.h>
#include <histedit.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

#include "term.h"

enum { HISTORY_LINES = 1000 };

struct cli_reader {
    EditLine *el; /* NULL: not a terminal */
    History *history;
    char *history_path;
    const char *prompt;
    char *line;       /* getline's buffer */
    sigset_t outside; /* the signal mask while no line is read */
    struct termios normal;
    bool has_normal; /* normal: how the terminal was found */
    size_t cap;
};

static char *el_prompt(EditLine *el) {
    void *data = NULL;
    el_get(el, EL_CLIENTDATA, &data);
    return (char *)(uintptr_t)((cli_reader *)data)->prompt;
}

/* Waits for input or Ctrl-C. The signal is blocked everywhere but inside ppoll, so one that comes
 * just before the wait is not lost. */
static bool wait_for_input(const cli_reader *r) {
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    while (!cli_interrupted()) {
        int k = ppoll(&input, 1, NULL, &r->outside);
        if (k > 0 || (k < 0 && errno != EINTR)) {
            return true; /* a read says what it is */
        }
    }
    return false;
}

/* One character for libedit: 1, 0 at the end, -1 on an error or an interrupt. */
static int el_getc_or_interrupt(EditLine *el, wchar_t *ret) {
    void *data = NULL;
    el_get(el, EL_CLIENTDATA, &data);
    mbstate_t state;
    memset(&state, 0, sizeof(state));
    for (;;) {
        char c;
        if (!wait_for_input(data)) {
            return -1;
        }
        ssize_t k = read(STDIN_FILENO, &c, 1);
        if (k < 0 && errno == EINTR) {
            continue; /* a window that changed its size */
        }
        if (k <= 0) {
            return (int)k;
        }
        size_t got = mbrtowc(ret, &c, 1, &state);
        if (got == (size_t)-1) {
            *ret = L'?';
            return 1;
        }
        if (got != (size_t)-2) {
            return 1;
        }
    }
}

/* While an answer runs the terminal collects whole lines, and would make a NUL of a Ctrl-D typed
 * there: its end-of-file key is off for so long, so the editor gets the Ctrl-D itself. */
static void while_answering(const cli_reader *r) {
    if (r->has_normal) {
        struct termios t = r->normal;
        t.c_cc[VEOF] = _POSIX_VDISABLE;
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &t);
    }
}

/* The key is back and single characters come through, in one step: libedit, which takes over from
 * here, believes only what it finds in a terminal that collects lines. */
static void before_editing(const cli_reader *r) {
    if (r->has_normal) {
        struct termios t = r->normal;
        t.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &t);
    }
}

static bool start_libedit(cli_reader *r) {
    /* Letters beyond ASCII need a UTF-8 locale; numbers stay as in C. */
    setlocale(LC_CTYPE, "");
    if (MB_CUR_MAX < 2) {
        setlocale(LC_CTYPE, "C.UTF-8");
    }
    r->has_normal = tcgetattr(STDIN_FILENO, &r->normal) == 0;
    r->el = el_init("caisson", stdin, stdout, stderr);
    r->history = history_init();
    if (r->el == NULL || r->history == NULL) {
        return false;
    }
    HistEvent ev;
    history(r->history, &ev, H_SETSIZE, HISTORY_LINES);
    history(r->history, &ev, H_SETUNIQUE, 1);
    if (r->history_path != NULL) {
        history(r->history, &ev, H_LOAD, r->history_path);
    }
    el_set(r->el, EL_CLIENTDATA, r);
    el_set(r->el, EL_PROMPT, el_prompt);
    el_set(r->el, EL_EDITOR, "emacs");
    el_set(r->el, EL_SIGNAL, 0);
    el_set(r->el, EL_HIST, history, r->history);
    el_set(r->el, EL_GETCFN, el_getc_or_interrupt);
    el_set(r->el, EL_BIND, "^R", "em-inc-search-prev", NULL);
    return true;
}

cli_reader *cli_reader_new(const char *history_path) {
    cli_reader *r = calloc(1, sizeof(*r));
    if (r == NULL) {
        return NULL;
    }
    if (history_path != NULL) {
        r->history_path = strdup(history_path);
    }
    if (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && !start_libedit(r)) {
        cli_reader_free(r);
        return NULL;
    }
    return r;
}

void cli_reader_free(cli_reader *r) {
    if (r == NULL) {
        return;
    }
    if (r->history != NULL) {
        HistEvent ev;
        if (r->history_path != NULL) {
            mode_t mask = umask(077); /* what one asked is nobody else's business */
            history(r->history, &ev, H_SAVE, r->history_path);
            umask(mask);
        }
        history_end(r->history);
    }
    if (r->el != NULL) {
        el_end(r->el);
    }
    if (r->has_normal) {
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &r->normal);
    }
    free(r->history_path);
    free(r->line);
    free(r);
}

bool cli_reader_is_tty(const cli_reader *r) {
    return r->el != NULL;
}

static cli_line next_edited(cli_reader *r, const char **ret, size_t *ret_n) {
    int n = 0;
    sigset_t interrupt;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    sigprocmask(SIG_BLOCK, &interrupt, &r->outside);
    before_editing(r);
    const char *line = el_gets(r->el, &n);
    while_answering(r);
    sigprocmask(SIG_SETMASK, &r->outside, NULL);
    if (cli_interrupted()) {
        el_reset(r->el);
        fputc('\n', stdout);
        return CLI_LINE_INTERRUPT;
    }
    if (line == NULL || n <= 0) {
        return CLI_LINE_END;
    }
    if (line[n - 1] == '\n') {
        n--;
    }
    char *copy = realloc(r->line, (size_t)n + 1);
    if (copy == NULL) {
        return CLI_LINE_END;
    }
    r->line = copy;
    memcpy(copy, line, (size_t)n);
    copy[n] = '\0';
    if (n > 0) {
        HistEvent ev;
        history(r->history, &ev, H_ENTER, copy);
    }
    *ret = copy;
    *ret_n = (size_t)n;
    return CLI_LINE_TEXT;
}

cli_line cli_reader_next(cli_reader *r, const char *prompt, const char **ret, size_t *ret_n) {
    if (r->el != NULL) {
        r->prompt = prompt;
        return next_edited(r, ret, ret_n);
    }
    clearerr(stdin);
    ssize_t n = getline(&r->line, &r->cap, stdin);
    if (n < 0) {
        return cli_interrupted() ? CLI_LINE_INTERRUPT : CLI_LINE_END;
    }
    if (n > 0 && r->line[n - 1] == '\n') {
        r->line[--n] = '\0';
    }
    *ret = r->line;
    *ret_n = (size_t)n;
    return CLI_LINE_TEXT;
}
