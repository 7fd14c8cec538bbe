/* SPDX-License-Identifier: Apache-2.0 */
/* Finds stop strings in a text that comes in pieces: text that may be the beginning of a stop
 * string is held back until it is certain. */
#ifndef CSN_ENGINE_STOP_H
#define CSN_ENGINE_STOP_H

#include "base/str.h"

enum { CSN_MAX_STOPS = 64, CSN_MAX_STOP_BYTES = 4096 };

/* In `held` (all text not told yet): returns true and *ret_tell = bytes before the earliest stop
 * string when one is there, and *ret_stop = which (the first in the list of those that begin
 * there); else false and *ret_tell = bytes that no stop string can begin in. */
bool csn_stop_find(csn_str held, const csn_str *stop, uint32_t n_stop, size_t *ret_tell,
                   uint32_t *ret_stop);

#endif
