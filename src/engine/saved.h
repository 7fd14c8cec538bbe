/* SPDX-License-Identifier: Apache-2.0 */
/* A session's state as a file, in the form of WARP's engine (warp facts 13): of models whose layers
 * are all KDA or latent attention. The file tells neither the model nor the tokens: another model
 * of the same shapes takes it, and nobody can go back in what was loaded. */
#ifndef CSN_ENGINE_SAVED_H
#define CSN_ENGINE_SAVED_H

#include "engine/session.h"

/* The old file stands until the new one is whole. CAISSON_E_UNSUPPORTED: the model has other
 * layers, or keys are kept in q8_0, which the file's floats would not bring back. */
caisson_status csn_session_save(csn_session *s, csn_fs *fs, const char *path, caisson_error *err);
/* The next eval goes on behind the file's tokens; there are no logits before it. Everything is
 * checked first: on CAISSON_E_PARSE, _BOUNDS, _CONTEXT the session is as it was; after CAISSON_E_IO
 * it is empty. */
caisson_status csn_session_load(csn_session *s, csn_fs *fs, const char *path, caisson_error *err);

#endif
