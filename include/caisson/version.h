/* SPDX-License-Identifier: Apache-2.0 */
/* The version of the header, and of the library that is linked. Until 1.0 the ABI may change with
 * the minor number. */
#ifndef CAISSON_VERSION_H
#define CAISSON_VERSION_H

#include "caisson/export.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CAISSON_VERSION "0.1.0"

/* CAISSON_VERSION of the library at run time; static storage. */
CAISSON_API const char *caisson_version(void);

#ifdef __cplusplus
}
#endif
#endif
