/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a file against its hashes, then lists its tensors with their first value.
 *
 *   example_inspect model.cmf
 */
#include <inttypes.h>
#include <stdio.h>

#include <caisson.h>

static void print_fault(void *ctx, const caisson_error *fault) {
    (void)ctx;
    char line[512];
    printf("fault: %s\n", caisson_error_format(fault, line, sizeof(line)));
}

static int fail(const caisson_error *err) {
    char line[512];
    fprintf(stderr, "%s\n", caisson_error_format(err, line, sizeof(line)));
    return 1;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: %s FILE.cmf\n", argv[0]);
        return 2;
    }
    caisson_error err;
    caisson_verify_options options = {.struct_size = sizeof(options), .on_fault = print_fault};
    uint64_t n_faults;
    if (caisson_verify(argv[1], &options, &n_faults, &err) != CAISSON_OK) {
        return fail(&err);
    }
    printf("%s: %s\n", argv[1], n_faults == 0 ? "valid" : "not valid");
    if (n_faults > 0) {
        return 1;
    }
    caisson_file *file;
    if (caisson_file_open(argv[1], NULL, &file, &err) != CAISSON_OK) {
        return fail(&err);
    }
    caisson_tensor_info t;
    for (uint32_t i = 0; caisson_file_tensor(file, i, &t); i++) {
        float first = 0;
        if (t.n_values > 0 && caisson_file_decode(file, i, 0, 1, &first, &err) != CAISSON_OK) {
            (void)fail(&err); /* a type that this build cannot decode: the others still show */
        }
        printf("%-8s %12" PRIu64 " bytes  %g  %.*s\n", t.dtype, t.n_bytes, (double)first,
               (int)t.name_n, t.name);
    }
    caisson_file_close(file);
    return 0;
}
