/* SPDX-License-Identifier: Apache-2.0 */
/* The one piece of process-wide state of the library, because a signal handler is one: a fixed list
 * of guarded ranges that the handler reads with atomic loads alone, and the previous handler. The
 * mutex guards installing and removing; the handler never takes it. */
#include "store/guard.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/os.h"

enum { MAX_GUARDS = 1024 }; /* one for each mapped file: a model may have hundreds */

struct csn_guard {
    _Atomic uintptr_t first, end; /* end == 0: free */
    _Atomic uint64_t lost_at;     /* offset + 1; 0 = nothing lost */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* all below but what is atomic */
static struct csn_guard guards[MAX_GUARDS];
static unsigned n_guards;
static bool is_installed; /* on top, or below a handler that somebody put on ours */
static struct sigaction previous;
static uintptr_t page_bytes;

static struct csn_guard *find(uintptr_t address) {
    for (int i = 0; i < MAX_GUARDS; i++) {
        if (address >= atomic_load(&guards[i].first) && address < atomic_load(&guards[i].end)) {
            return &guards[i];
        }
    }
    return NULL;
}

static bool is_default(const struct sigaction *a) {
    return (a->sa_flags & SA_SIGINFO) == 0 &&
           (a->sa_handler == SIG_DFL || a->sa_handler == SIG_IGN);
}

/* What the process would have done without us. */
static void chain(int signal_number, siginfo_t *info, void *context) {
    if ((previous.sa_flags & SA_SIGINFO) != 0) {
        previous.sa_sigaction(signal_number, info, context);
    } else if (!is_default(&previous)) {
        previous.sa_handler(signal_number);
    } else {
        /* back to the default: the access is repeated on return and ends the process as it would */
        struct sigaction dfl = {0};
        dfl.sa_handler = SIG_DFL;
        (void)sigaction(signal_number, &dfl, NULL);
    }
}

static void on_sigbus(int signal_number, siginfo_t *info, void *context) {
    int saved = errno;
    uintptr_t address = (uintptr_t)info->si_addr;
    struct csn_guard *g = find(address);
    if (g != NULL) {
        void *page = (void *)(address & ~(page_bytes - 1)); /* NOLINT: an address, not an object */
        uint64_t none = 0;
        (void)atomic_compare_exchange_strong(&g->lost_at, &none, address - g->first + 1);
        if (csn_os_zero_pages(page, page_bytes)) {
            errno = saved;
            return;
        }
    }
    errno = saved;
    chain(signal_number, info, context);
}

/* Not where ours is below another: that one passes on to ours, which must not pass back to it. */
static caisson_status install(caisson_error *err) {
    struct sigaction ours = {0};
    struct sigaction now;
    if (is_installed && sigaction(SIGBUS, NULL, &now) == 0 && !is_default(&now)) {
        return CAISSON_OK;
    }
    ours.sa_sigaction = on_sigbus;
    ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    sigemptyset(&ours.sa_mask);
    page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    if (sigaction(SIGBUS, &ours, &previous) != 0) {
        return CSN_FAIL(err, CAISSON_E_IO, .what = "cannot install the SIGBUS handler",
                        .sys_errno = errno);
    }
    is_installed = true;
    return CAISSON_OK;
}

static void remove_handler(void) {
    struct sigaction now;
    if (sigaction(SIGBUS, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) != 0 &&
        now.sa_sigaction == on_sigbus) {
        is_installed = sigaction(SIGBUS, &previous, NULL) != 0;
    }
}

caisson_status csn_guard_new(const void *base, uint64_t size, csn_guard **ret, caisson_error *err) {
    caisson_status status = CAISSON_OK;
    struct csn_guard *g = NULL;
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < MAX_GUARDS && g == NULL; i++) {
        g = atomic_load(&guards[i].end) == 0 ? &guards[i] : NULL;
    }
    if (g == NULL) {
        status = CSN_FAIL(err, CAISSON_E_LIMIT, .what = "too many guarded mappings",
                          CSN_VALUES(MAX_GUARDS, MAX_GUARDS + 1));
    } else if (n_guards == 0) {
        status = install(err);
    }
    if (status == CAISSON_OK) {
        n_guards++;
        atomic_store(&g->lost_at, 0);
        atomic_store(&g->first, (uintptr_t)base);
        atomic_store(&g->end, (uintptr_t)base + size);
        *ret = g;
    }
    pthread_mutex_unlock(&mutex);
    return status;
}

void csn_guard_free(csn_guard *g) {
    if (g == NULL) {
        return;
    }
    pthread_mutex_lock(&mutex);
    atomic_store(&g->end, 0);
    atomic_store(&g->first, 0);
    if (--n_guards == 0) {
        remove_handler();
    }
    pthread_mutex_unlock(&mutex);
}

bool csn_guard_is_lost(const csn_guard *g, uint64_t *ret_offset) {
    uint64_t at = atomic_load(&g->lost_at);
    if (at == 0) {
        return false;
    }
    *ret_offset = at - 1;
    return true;
}
