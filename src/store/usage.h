/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of a model's experts from the last time it was open: usage.waste beside them. */
#ifndef CSN_STORE_USAGE_H
#define CSN_STORE_USAGE_H

#include "base/log.h"
#include "store/stream.h"

/* Reads the experts that were used most, as many as fit, before anybody asks for one. Without the
 * file nothing happens; one that cannot be read is told and passed over: it only saves time. */
caisson_status csn_stream_recall(csn_stream *s, csn_fs *fs, const csn_log *log, caisson_error *err);
/* Writes the file anew, from what is in memory. CAISSON_E_UNSUPPORTED: the model is no .waste. */
caisson_status csn_stream_learn(csn_stream *s, csn_fs *fs, caisson_error *err);

#endif
