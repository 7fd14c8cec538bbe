/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory this process may use: the smallest of what the machine has, what each control
 * group above us grants, and the process's own limits. How much of it others use right now is not
 * asked: a plan must not depend on the moment.
 */
#ifndef CSN_BASE_LIMITS_H
#define CSN_BASE_LIMITS_H

#include <stdint.h>

typedef struct csn_memory_limit {
    uint64_t bytes;
    const char *by; /* "machine", "control group", "RLIMIT_AS", "RLIMIT_DATA" */
} csn_memory_limit;

csn_memory_limit csn_memory_limit_get(void);

/* What the control groups of both versions grant, UINT64_MAX = no limit. `root` is where they are
 * mounted (/sys/fs/cgroup), `self` the file that names ours (/proc/self/cgroup); tests have their
 * own. NULL or empty root: no limit. Where `self` cannot be read, names a group that is not there,
 * or leads out of root (".."), what is left of its path counts, the root at least: inside a
 * container the path is often that of the host. */
uint64_t csn_cgroup_memory_limit(const char *root, const char *self);

#endif
