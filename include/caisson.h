/* SPDX-License-Identifier: Apache-2.0 */
/* Everything that libcaisson offers, in the order in which one needs it.
 *
 *   caisson_error err;
 *   caisson_model *model;
 *   if (caisson_model_open("m.cmf", NULL, &model, &err) != CAISSON_OK) {
 *       char line[512];
 *       fprintf(stderr, "%s\n", caisson_error_format(&err, line, sizeof(line)));
 *       return 1;
 *   }
 *   caisson_session *session;
 *   caisson_session_new(model, NULL, &session, &err);
 *   ... caisson_model_encode_chat, caisson_generate ...
 *   caisson_session_free(session);
 *   caisson_model_close(model);
 *
 * examples/ has whole programs. Rules that hold everywhere:
 *   - A call that can fail returns caisson_status and takes `caisson_error *err` last (NULL is
 *     fine). Success does not touch err; failure does not touch the outputs.
 *   - An options struct starts with struct_size = sizeof(the struct); a zero field means its
 *     default; write it with designated initialisers. NULL instead of the struct = all defaults.
 *   - Text is {pointer, length} in UTF-8. Lengths are bytes. Token ids are int32_t.
 *   - What the library allocated is freed by the library (caisson_text_free, caisson_ids_free).
 *   - A model may be used by any number of threads at once; a session or a file by one at a time.
 */
#ifndef CAISSON_H
#define CAISSON_H

#include "caisson/convert.h"
#include "caisson/error.h"
#include "caisson/export.h"
#include "caisson/generate.h"
#include "caisson/inspect.h"
#include "caisson/limits.h"
#include "caisson/masks.h"
#include "caisson/model.h"
#include "caisson/plan.h"
#include "caisson/rewrite.h"
#include "caisson/score.h"
#include "caisson/sign.h"
#include "caisson/skill.h"
#include "caisson/synth.h"
#include "caisson/text.h"
#include "caisson/version.h"

#endif
