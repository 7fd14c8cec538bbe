/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a .sig and as a key file: what is taken is written again and read back the same. */
#include "../tests/support/memory_fs.h"
#include "format/signature.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    csn_signature s;
    csn_signature again;
    caisson_error err;
    uint8_t key[CSN_ED25519_KEY_BYTES];
    csn_file_stamp stamp;
    csn_file *f;
    memory_fs fs;
    memory_fs_init(&fs);
    memory_fs_put(&fs, "m", "x", 1);
    memory_fs_put(&fs, "m.sig", data, size);
    if (csn_signature_parse(csn_str_make((const char *)data, size), &s, &err) == CAISSON_OK) {
        csn_buf text = CSN_BUF_INIT(1 << 12);
        if (csn_signature_write(&s, &text, &err) != CAISSON_OK ||
            csn_signature_parse(csn_buf_view(&text), &again, &err) != CAISSON_OK ||
            memcmp(&s, &again, sizeof(s)) != 0) {
            __builtin_trap();
        }
        csn_buf_free(&text);
    }
    if (csn_fs_open(&fs.base, "m", CSN_OPEN_READ, &f, &err) == CAISSON_OK) {
        (void)csn_signature_check(&fs.base, "m", f, NULL, NULL, key, &stamp, &err);
        csn_file_close(f);
    }
    (void)csn_key_read(&fs.base, "m.sig", key, &err);
    memory_fs_done(&fs);
    return 0;
}
