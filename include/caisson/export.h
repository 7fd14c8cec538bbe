/* SPDX-License-Identifier: Apache-2.0 */
/* Marks the functions that the shared library exports; everything else is hidden. */
#ifndef CAISSON_EXPORT_H
#define CAISSON_EXPORT_H

#if defined(__GNUC__)
#define CAISSON_API __attribute__((visibility("default")))
#else
#define CAISSON_API
#endif

#endif
