/* SPDX-License-Identifier: Apache-2.0 */
/* A session from the inside, for what saves and restores it. */
#ifndef CSN_ENGINE_SESSION_INTERNAL_H
#define CSN_ENGINE_SESSION_INTERNAL_H

#include "engine/session.h"
#include "model/kv.h"

const csn_plan *csn_session_plan(const csn_session *s);
const csn_kv *csn_session_kv(const csn_session *s);
/* Brings recurrent states to n_past, where an eval that failed or a truncation left them elsewhere.
 */
caisson_status csn_session_settle(csn_session *s, caisson_error *err);
/* From now on the cache holds n tokens, which nobody knows: the session cannot go back behind them,
 * but to 0. */
void csn_session_restored(csn_session *s, uint32_t n);

#endif
