/* SPDX-License-Identifier: Apache-2.0 */
#include "format/journal.h"

#include "base/le.h"

enum { HEAD = 24, RECORD = 48 };

static const char magic[8] = {'C', 'S', 'N', 'J', 'R', 'N', 'L', '4'};

uint64_t csn_journal_mix(uint64_t id, uint64_t value) {
    uint64_t x = (id ^ value) * UINT64_C(0x9E3779B97F4A7C15);
    return (x << 29 | x >> 35) ^ x >> 17;
}

/* The bytes of record i. */
static void record_bytes(uint64_t plan_id, uint64_t i, const csn_journal_entry *e,
                         uint8_t out[RECORD]) {
    uint64_t check = csn_journal_mix(csn_journal_mix(1, plan_id), i);
    csn_put64(out, e->hash);
    memcpy(out + 8, e->digest, sizeof(e->digest));
    csn_put64(out + 24, e->dtype_id);
    csn_put64(out + 32, e->nbytes);
    for (size_t k = 0; k < RECORD - 8; k += 8) {
        check = csn_journal_mix(check, csn_get64(out + k));
    }
    csn_put64(out + RECORD - 8, check);
}

static void head_bytes(uint64_t plan_id, uint8_t out[HEAD]) {
    memcpy(out, magic, sizeof(magic));
    csn_put64(out + 8, plan_id);
    csn_put64(out + 16, csn_journal_mix(2, plan_id));
}

caisson_status csn_journal_create(csn_fs *fs, const char *path, uint64_t plan_id, csn_journal *ret,
                                  caisson_error *err) {
    csn_journal j = {.plan_id = plan_id};
    uint8_t head[HEAD];
    CSN_TRY(csn_fs_open(fs, path, CSN_OPEN_CREATE_NEW, &j.file, err));
    head_bytes(plan_id, head);
    caisson_status status = csn_file_write_at(j.file, 0, head, sizeof(head), err);
    if (status != CAISSON_OK) {
        csn_journal_close(&j);
        return status;
    }
    *ret = j;
    return CAISSON_OK;
}

static caisson_status read_records(csn_journal *j, uint32_t max, csn_journal_entry *entries,
                                   caisson_error *err) {
    uint64_t size;
    uint8_t head[HEAD];
    uint8_t want[HEAD];
    CSN_TRY(csn_file_size(j->file, &size, err));
    head_bytes(j->plan_id, want);
    if (size >= HEAD) {
        CSN_TRY(csn_file_read_at(j->file, 0, head, HEAD, err));
    }
    if (size < HEAD || memcmp(head, want, HEAD) != 0) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .file = j->file->path,
                        .what = "journal of another conversion");
    }
    while (j->n < max && HEAD + ((uint64_t)j->n + 1) * RECORD <= size) {
        uint8_t got[RECORD];
        uint8_t same[RECORD];
        CSN_TRY(csn_file_read_at(j->file, HEAD + (uint64_t)j->n * RECORD, got, RECORD, err));
        csn_journal_entry e = {
            .hash = csn_get64(got), .dtype_id = csn_get64(got + 24), .nbytes = csn_get64(got + 32)};
        memcpy(e.digest, got + 8, sizeof(e.digest));
        record_bytes(j->plan_id, j->n, &e, same);
        if (memcmp(got, same, RECORD) != 0) {
            break;
        }
        entries[j->n++] = e;
    }
    return CAISSON_OK;
}

caisson_status csn_journal_resume(csn_fs *fs, const char *path, uint64_t plan_id, uint32_t max,
                                  csn_journal_entry *entries, csn_journal *ret,
                                  caisson_error *err) {
    csn_journal j = {.plan_id = plan_id};
    CSN_TRY(csn_fs_open(fs, path, CSN_OPEN_READ_WRITE, &j.file, err));
    caisson_status status = read_records(&j, max, entries, err);
    if (status != CAISSON_OK) {
        csn_journal_close(&j);
        return status;
    }
    *ret = j;
    return CAISSON_OK;
}

caisson_status csn_journal_cut(csn_journal *j, uint32_t n, caisson_error *err) {
    CSN_TRY(j->file->ops->truncate(j->file, HEAD + (uint64_t)n * RECORD, err));
    j->n = n;
    return CAISSON_OK;
}

caisson_status csn_journal_append(csn_journal *j, const csn_journal_entry *entries, uint32_t n,
                                  caisson_error *err) {
    while (j->n < n) {
        uint8_t r[RECORD];
        record_bytes(j->plan_id, j->n, &entries[j->n], r);
        CSN_TRY(csn_file_write_at(j->file, HEAD + (uint64_t)j->n * RECORD, r, RECORD, err));
        j->n++;
    }
    return CAISSON_OK;
}

void csn_journal_close(csn_journal *j) {
    csn_file_close(j->file);
    j->file = NULL;
}
