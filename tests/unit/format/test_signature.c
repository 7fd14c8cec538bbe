/* SPDX-License-Identifier: Apache-2.0 */
/* Detached signatures (CMF 8.2). tests/golden/format/signatures.json is made by
 * tests/oracle/signatures.py with Python's cryptography package. */
#include "unit/test.h"

#include "base/alloc.h"
#include "base/hex.h"
#include "base/json.h"
#include "format/signature.h"
#include "support/memory_fs.h"

static memory_fs fs;

static int setup(void **state) {
    (void)state;
    memory_fs_init(&fs);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    int n_open = fs.n_open;
    memory_fs_done(&fs);
    return n_open;
}

static caisson_status check(const uint8_t *want, uint8_t key[32], caisson_error *err) {
    csn_file *f = NULL;
    csn_file_stamp stamp;
    ASSERT_OK(csn_fs_open(&fs.base, "m", CSN_OPEN_READ, &f, err), err);
    caisson_status status = csn_signature_check(&fs.base, "m", f, want, NULL, key, &stamp, err);
    csn_file_close(f);
    return status;
}

/* The golden rows: SHA-256, keys, signatures and their text, ours against theirs. SPEC("CMF 8.2")
 */
static void others_signatures_are_ours(void **state) {
    (void)state;
    caisson_error err;
    csn_buf text = {0};
    csn_json *doc;
    ASSERT_OK(csn_fs_read_all(csn_fs_os(), CSN_SOURCE_DIR "/tests/golden/format/signatures.json",
                              1 << 20, &text, &err),
              &err);
    ASSERT_OK(csn_json_parse(csn_buf_view(&text), CSN_JSON_UNIQUE, &doc, &err), &err);
    uint64_t row = 0;
    for (csn_jiter it = csn_jval_iter(csn_json_root(doc)); csn_jiter_next(&it); row++) {
        csn_str seed_hex = {0};
        csn_str sig = {0};
        uint64_t n = 0;
        assert_true(csn_jval_str(csn_jval_get(it.value, "seed"), &seed_hex));
        assert_true(csn_jval_str(csn_jval_get(it.value, "sig"), &sig));
        assert_true(csn_jval_u64(csn_jval_get(it.value, "n"), &n));
        uint8_t *bytes = malloc((size_t)n + 1);
        assert_non_null(bytes);
        for (uint64_t k = 0; k < n; k++) {
            bytes[k] = (uint8_t)(k * k + row);
        }
        memory_fs_put(&fs, "m", bytes, (size_t)n);
        memory_fs_put(&fs, "m.sig", sig.ptr, sig.len);
        uint8_t key[32];
        ASSERT_OK(check(NULL, key, &err), &err);
        ASSERT_OK(check(key, key, &err), &err);

        uint8_t seed[32];
        csn_file *f = NULL;
        csn_file_stamp stamp;
        csn_signature s;
        csn_buf again = CSN_BUF_INIT(4096);
        assert_true(csn_hex_decode(seed_hex, seed, sizeof(seed)));
        ASSERT_OK(csn_ed25519_public_key(seed, s.key, &err), &err);
        assert_memory_equal(s.key, key, sizeof(key));
        ASSERT_OK(csn_fs_open(&fs.base, "m", CSN_OPEN_READ, &f, &err), &err);
        ASSERT_OK(csn_file_sha256(f, NULL, s.sha256, &stamp, &err), &err);
        csn_file_close(f);
        ASSERT_OK(csn_ed25519_sign(seed, s.sha256, 32, s.sig, &err), &err);
        ASSERT_OK(csn_signature_write(&s, &again, &err), &err);
        assert_true(csn_str_eq(csn_buf_view(&again), sig)); /* to the byte: Ed25519 has no chance */
        csn_buf_free(&again);
        free(bytes);
    }
    assert_int_equal(row, 7);
    csn_json_free(doc);
    csn_buf_free(&text);
}

#define HEX64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define SIG(alg, pubkey, sha256, sig)                                                              \
    "{\"alg\":\"" alg "\",\"pubkey\":\"" pubkey "\",\"sha256\":\"" sha256 "\",\"sig\":\"" sig "\"" \
    "}"

static void malformed_ones_are_refused_by_name(void **state) {
    (void)state;
    static const struct {
        const char *text;
        caisson_status status;
        const char *key;
    } rows[] = {
        {"", CAISSON_E_PARSE, ""},
        {"[]", CAISSON_E_PARSE, ""},
        {"{}", CAISSON_E_PARSE, "alg"},
        {"{\"alg\":7}", CAISSON_E_PARSE, "alg"},
        {SIG("rsa", HEX64, HEX64, HEX64 HEX64), CAISSON_E_UNSUPPORTED, "alg"},
        {SIG("Ed25519-sha256", HEX64, HEX64, HEX64 HEX64), CAISSON_E_UNSUPPORTED, "alg"},
        {SIG("ed25519-sha256", "", HEX64, HEX64 HEX64), CAISSON_E_PARSE, "pubkey"},
        {SIG("ed25519-sha256", HEX64 "0", HEX64, HEX64 HEX64), CAISSON_E_PARSE, "pubkey"},
        {SIG("ed25519-sha256", HEX64, HEX64 HEX64, HEX64 HEX64), CAISSON_E_PARSE, "sha256"},
        {SIG("ed25519-sha256", HEX64, "g" HEX64, HEX64 HEX64), CAISSON_E_PARSE, "sha256"},
        {SIG("ed25519-sha256", HEX64, HEX64, HEX64), CAISSON_E_PARSE, "sig"},
        {SIG("ed25519-sha256", HEX64, HEX64, HEX64 HEX64 "00"), CAISSON_E_PARSE, "sig"},
        {SIG("ed25519-sha256", HEX64, HEX64,
             HEX64 "0x23456789abcdef0123456789abcdef0123456789abcd"
                   "ef0123456789abcdef"),
         CAISSON_E_PARSE, "sig"},
        {SIG("ed25519-sha256", HEX64, HEX64, HEX64 HEX64) "x", CAISSON_E_PARSE, ""},
        {"{\"alg\":\"ed25519-sha256\",\"alg\":\"ed25519-sha256\",\"pubkey\":\"" HEX64
         "\",\"sha256\":\"" HEX64 "\",\"sig\":\"" HEX64 HEX64 "\"}",
         CAISSON_E_PARSE, "alg"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        csn_signature s;
        caisson_error err;
        caisson_status status = csn_signature_parse(csn_str_from(rows[i].text), &s, &err);
        if (status != rows[i].status || strcmp(err.section, "signature") != 0 ||
            (rows[i].key[0] != '\0' && strcmp(err.tensor, rows[i].key) != 0)) {
            fail_msg("%s: %s, %s", rows[i].text, caisson_status_name(status), err.tensor);
        }
    }
    csn_signature s;
    caisson_error err;
    ASSERT_OK(csn_signature_parse(CSN_STR("{\"later\":1,\"alg\":\"ed25519-sha256\",\"pubkey\":\""
                                          "0123456789ABCDEF0123456789abcdef0123456789abcdef01234567"
                                          "89abcdef\",\"sha256\":\"" HEX64
                                          "\",\"sig\":\"" HEX64 HEX64 "\"}"),
                                  &s, &err),
              &err);
}

static void put_signed(uint8_t key[32]) {
    static const uint8_t seed[32] = {7};
    csn_signature s;
    csn_file *f = NULL;
    csn_file_stamp stamp;
    csn_buf text = CSN_BUF_INIT(4096);
    caisson_error err;
    memory_fs_put(&fs, "m", "the model", 9);
    ASSERT_OK(csn_ed25519_public_key(seed, s.key, &err), &err);
    ASSERT_OK(csn_fs_open(&fs.base, "m", CSN_OPEN_READ, &f, &err), &err);
    ASSERT_OK(csn_file_sha256(f, NULL, s.sha256, &stamp, &err), &err);
    csn_file_close(f);
    ASSERT_OK(csn_ed25519_sign(seed, s.sha256, 32, s.sig, &err), &err);
    ASSERT_OK(csn_signature_write(&s, &text, &err), &err);
    memory_fs_put(&fs, "m.sig", text.ptr, text.len);
    memcpy(key, s.key, 32);
    csn_buf_free(&text);
}

/* Every bit of the file, and every hex digit of the signature. */
static void any_change_is_seen(void **state) {
    (void)state;
    uint8_t key[32];
    uint8_t other[32];
    caisson_error err;
    put_signed(key);
    ASSERT_OK(check(key, other, &err), &err);
    for (size_t i = 0; i < 9 * 8; i++) {
        uint8_t *p = &memory_fs_find(&fs, "m")->bytes[i / 8];
        *p ^= (uint8_t)(1u << i % 8);
        ASSERT_STATUS(check(key, other, &err), CAISSON_E_SIGNATURE);
        assert_string_equal(err.file, "m");
        assert_string_equal(err.section, "signature");
        *p ^= (uint8_t)(1u << i % 8);
    }
    memory_fs_node *sig = memory_fs_find(&fs, "m.sig");
    size_t n = 0;
    for (size_t i = 40; i < sig->len; i++) {
        uint8_t old = sig->bytes[i];
        if (!((old >= '0' && old <= '9') || (old >= 'a' && old <= 'f')) ||
            sig->bytes[i - 1] == '"' || sig->bytes[i - 1] == 's') {
            continue;
        }
        sig->bytes[i] = old == '0' ? '1' : '0';
        assert_int_not_equal(check(key, other, &err), CAISSON_OK);
        sig->bytes[i] = old;
        n++;
    }
    assert_true(n > 200);
    other[0] = (uint8_t)(key[0] ^ 1);
    memcpy(other + 1, key + 1, 31);
    ASSERT_STATUS(check(other, other, &err), CAISSON_E_SIGNATURE);
    assert_non_null(strstr(err.what, "another key"));
    memory_fs_drop(sig);
    ASSERT_STATUS(check(key, other, &err), CAISSON_E_SIGNATURE);
    bool is_there = true;
    ASSERT_OK(csn_signature_exists(&fs.base, "m", &is_there, &err), &err);
    assert_false(is_there);
    csn_alloc_fail_after(0); /* not to know is not to say that there is none */
    caisson_status status = csn_signature_exists(&fs.base, "m", &is_there, &err);
    csn_alloc_fail_after(-1);
    ASSERT_STATUS(status, CAISSON_E_NOMEM);
}

static bool touch(void *ctx, const char *stage, uint64_t done, uint64_t total) {
    (void)ctx;
    (void)stage;
    (void)done;
    (void)total;
    memory_fs_find(&fs, "m")->changed_ns++;
    return true;
}

static void a_file_that_changes_meanwhile_is_refused(void **state) {
    (void)state;
    uint8_t key[32];
    caisson_error err;
    csn_file *f = NULL;
    csn_file_stamp stamp;
    put_signed(key);
    ASSERT_OK(csn_fs_open(&fs.base, "m", CSN_OPEN_READ, &f, &err), &err);
    csn_progress progress = {touch, NULL};
    ASSERT_STATUS(csn_signature_check(&fs.base, "m", f, key, &progress, key, &stamp, &err),
                  CAISSON_E_SIGNATURE);
    ASSERT_OK(csn_signature_check(&fs.base, "m", f, key, NULL, key, &stamp, &err), &err);
    ASSERT_OK(csn_file_is_still(f, &stamp, &err), &err);
    memory_fs_find(&fs, "m")->changed_ns++;
    ASSERT_STATUS(csn_file_is_still(f, &stamp, &err), CAISSON_E_SIGNATURE);
    csn_file_close(f);
}

static void keys_are_made_once_and_read_strictly(void **state) {
    (void)state;
    uint8_t pub[32];
    uint8_t seed[32];
    uint8_t read[32];
    uint8_t again[32];
    caisson_error err;
    ASSERT_OK(csn_key_make(&fs.base, "k", pub, &err), &err);
    ASSERT_OK(csn_key_read(&fs.base, "k", seed, &err), &err);
    ASSERT_OK(csn_key_read(&fs.base, "k.pub", read, &err), &err);
    assert_memory_equal(read, pub, 32);
    ASSERT_OK(csn_ed25519_public_key(seed, read, &err), &err);
    assert_memory_equal(read, pub, 32);
    ASSERT_STATUS(csn_key_make(&fs.base, "k", again, &err), CAISSON_E_EXISTS);
    memory_fs_drop(memory_fs_find(&fs, "k"));
    ASSERT_STATUS(csn_key_make(&fs.base, "k", again, &err), CAISSON_E_EXISTS);
    assert_string_equal(err.file, "k.pub");
    ASSERT_OK(csn_key_make(&fs.base, "k2", again, &err), &err);
    assert_memory_not_equal(again, pub, 32);
    static const char *const bad[] = {"", " ", HEX64 "0", HEX64 HEX64, "0x" HEX64, "g" HEX64};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        memory_fs_put(&fs, "bad", bad[i], strlen(bad[i]));
        ASSERT_STATUS(csn_key_read(&fs.base, "bad", read, &err), CAISSON_E_PARSE);
    }
    memory_fs_put(&fs, "bad", " \r\n" HEX64 "\t\n", 5 + 64);
    ASSERT_OK(csn_key_read(&fs.base, "bad", read, &err), &err);
}

/* RFC 8032, 7.1, test 2. */
static void vector_of_the_rfc(void **state) {
    (void)state;
    caisson_error err;
    uint8_t seed[32];
    uint8_t key[32];
    uint8_t sig[64];
    char hex[129];
    bool is_valid = false;
    assert_true(csn_hex_decode(
        CSN_STR("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb"), seed, 32));
    ASSERT_OK(csn_ed25519_public_key(seed, key, &err), &err);
    csn_hex_encode(key, 32, hex);
    assert_string_equal(hex, "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c");
    ASSERT_OK(csn_ed25519_sign(seed, "\x72", 1, sig, &err), &err);
    csn_hex_encode(sig, 64, hex);
    assert_string_equal(hex, "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
                             "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00");
    ASSERT_OK(csn_ed25519_verify(key, "\x72", 1, sig, &is_valid, &err), &err);
    assert_true(is_valid);
    ASSERT_OK(csn_ed25519_verify(key, "\x73", 1, sig, &is_valid, &err), &err);
    assert_false(is_valid);
    memset(key, 0xff, sizeof(key)); /* no point of the curve */
    ASSERT_OK(csn_ed25519_verify(key, "\x72", 1, sig, &is_valid, &err), &err);
    assert_false(is_valid);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        {"others' signatures are ours (CMF 8.2)", others_signatures_are_ours, NULL, NULL, NULL},
        {"malformed ones are refused by name (CMF 8.2)", malformed_ones_are_refused_by_name, NULL,
         NULL, NULL},
        {"any change is seen (CMF 8.2)", any_change_is_seen, NULL, NULL, NULL},
        cmocka_unit_test(a_file_that_changes_meanwhile_is_refused),
        cmocka_unit_test(keys_are_made_once_and_read_strictly),
        cmocka_unit_test(vector_of_the_rfc),
    };
    return cmocka_run_group_tests_name("format/signature", tests, setup, teardown);
}
