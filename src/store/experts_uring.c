/* SPDX-License-Identifier: Apache-2.0 */
/* io_uring for the expert store: one thread that keeps up to CSN_EXPERT_IN_FLIGHT blocks with the
 * kernel. New work is told through an eventfd that the ring itself reads, so that the thread waits
 * in one place. A block that the kernel did not read whole is finished by an ordinary read. */
#include "store/experts_internal.h"

#ifdef CSN_HAVE_LIBURING

#include <errno.h>
#include <liburing.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/threads.h"

enum { DEPTH = CSN_EXPERT_IN_FLIGHT, RING_ENTRIES = 32 };

struct csn_uring {
    csn_experts *store;
    struct io_uring ring;
    int wake_fd;
    uint64_t wake_value;            /* where the ring puts what it read from wake_fd */
    csn_expert_block blocks[DEPTH]; /* with the kernel, or free */
    uint32_t free[DEPTH], n_free;
    bool has_thread;
    pthread_t thread;
};

/* The ring is never full: DEPTH blocks and the eventfd are fewer than its entries. */
static void listen_for_wake(csn_uring *u) {
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
    io_uring_prep_read(sqe, u->wake_fd, &u->wake_value, sizeof(u->wake_value), 0);
    io_uring_sqe_set_data64(sqe, DEPTH);
}

static int descriptor_of(const csn_experts *e, uint32_t i_file) {
    const csn_expert_file *f = &e->files[i_file];
    return csn_file_descriptor(f->direct != NULL ? f->direct : f->buffered);
}

/* Puts as many blocks into the ring as it may hold. */
static void fill_ring(csn_uring *u) {
    csn_experts *e = u->store;
    csn_expert_block b;
    while (u->n_free > 0 && !e->is_stopping && csn_experts_next_block(e, &b)) {
        uint32_t i = u->free[--u->n_free];
        u->blocks[i] = b;
        struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
        io_uring_prep_read(sqe, descriptor_of(e, b.i_file), b.to, b.nbytes, b.offset);
        io_uring_sqe_set_data64(sqe, i);
    }
}

/* `res`: bytes, or a negative errno. */
static caisson_status finish_block(const csn_experts *e, const csn_expert_block *b, int res,
                                   caisson_error *err) {
    if (res < 0 && res != -EINVAL && res != -EAGAIN && res != -EINTR && res != -ECANCELED) {
        return CSN_FAIL(err, CAISSON_E_IO, .file = e->files[b->i_file].buffered->path,
                        CSN_AT(b->offset), .what = "cannot read", .sys_errno = -res);
    }
    return csn_experts_read_rest(e, b, res > 0 ? (size_t)res : 0, err);
}

static void take_result(csn_uring *u, uint64_t data, int res) {
    if (data == DEPTH) {
        listen_for_wake(u);
        return;
    }
    csn_expert_block b = u->blocks[data];
    caisson_error err;
    caisson_status status = finish_block(u->store, &b, res, &err);
    u->free[u->n_free++] = (uint32_t)data;
    pthread_mutex_lock(&u->store->mutex);
    csn_experts_block_done(u->store, &b, status, &err);
    pthread_mutex_unlock(&u->store->mutex);
}

/* After a stop the kernel is still waited for: what it reads lies in the store's memory. */
static void *run_ring(void *arg) {
    csn_uring *u = arg;
    listen_for_wake(u);
    for (;;) {
        pthread_mutex_lock(&u->store->mutex);
        fill_ring(u);
        bool is_over = u->store->is_stopping && u->n_free == DEPTH;
        pthread_mutex_unlock(&u->store->mutex);
        if (is_over) {
            return NULL;
        }
        (void)io_uring_submit_and_wait(&u->ring, 1); /* interrupted: tried again */
        struct io_uring_cqe *cqe;
        while (io_uring_peek_cqe(&u->ring, &cqe) == 0) {
            uint64_t data = io_uring_cqe_get_data64(cqe);
            int res = cqe->res;
            io_uring_cqe_seen(&u->ring, cqe);
            take_result(u, data, res);
        }
    }
}

static caisson_status refuse(const char *what, int e, caisson_error *err) {
    return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .what = what, .sys_errno = e);
}

static caisson_status open_ring(csn_uring *u, caisson_error *err) {
    for (uint32_t i = 0; i < u->store->map.n_files; i++) {
        csn_expert_file *f = &u->store->files[i];
        if (f->buffered != NULL && descriptor_of(u->store, i) < 0) {
            return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .file = f->buffered->path,
                            .what = "io_uring cannot read a file without a descriptor");
        }
    }
    int e = io_uring_queue_init(RING_ENTRIES, &u->ring, 0);
    if (e != 0) {
        return refuse("the kernel has no io_uring for us", -e, err);
    }
    u->wake_fd = eventfd(0, EFD_CLOEXEC);
    if (u->wake_fd < 0) {
        e = errno;
        io_uring_queue_exit(&u->ring);
        return refuse("no eventfd", e, err);
    }
    return CAISSON_OK;
}

caisson_status csn_uring_start(csn_experts *e, caisson_error *err) {
    csn_uring *u;
    CSN_TRY(CSN_NEW(1, &u, err));
    u->store = e;
    for (uint32_t i = 0; i < DEPTH; i++) {
        u->free[u->n_free++] = i;
    }
    caisson_status status = open_ring(u, err);
    if (status != CAISSON_OK) {
        csn_free(u);
        return status;
    }
    status = csn_thread_start(run_ring, u, &u->thread, err);
    u->has_thread = status == CAISSON_OK;
    if (status != CAISSON_OK) {
        csn_uring_stop(u);
        return status;
    }
    e->uring = u;
    return CAISSON_OK;
}

void csn_uring_wake(csn_uring *u) {
    uint64_t one = 1;
    (void)!write(u->wake_fd, &one, sizeof(one)); /* full: the ring has not read the last one yet */
}

void csn_uring_stop(csn_uring *u) {
    if (u == NULL) {
        return;
    }
    if (u->has_thread) {
        pthread_join(u->thread, NULL);
    }
    io_uring_queue_exit(&u->ring);
    (void)close(u->wake_fd);
    csn_free(u);
}

#else

caisson_status csn_uring_start(csn_experts *e, caisson_error *err) {
    (void)e;
    return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .what = "this build has no io_uring");
}

void csn_uring_wake(csn_uring *u) {
    (void)u;
}

void csn_uring_stop(csn_uring *u) {
    (void)u;
}

#endif
