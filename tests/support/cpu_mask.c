/* SPDX-License-Identifier: Apache-2.0 */
/* Linked into every test program: CSN_TEST_CPU_MASK=0 runs it on the plain C kernels, another
 * number (strtoul, base 0) with those flags of base/cpu.h. The library itself reads no variable. */
#include <stdio.h>
#include <stdlib.h>

#include "base/cpu.h"

__attribute__((constructor)) static void mask_cpu(void) {
    const char *text = getenv("CSN_TEST_CPU_MASK");
    if (text != NULL && *text != '\0') {
        csn_cpu_mask((uint32_t)strtoul(text, NULL, 0));
        (void)fprintf(stderr, "# CPU flags 0x%x\n", (unsigned)csn_cpu_flags());
    }
}
