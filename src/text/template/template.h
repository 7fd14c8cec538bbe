/* SPDX-License-Identifier: Apache-2.0 */
/* Chat templates: a Jinja interpreter with the semantics that transformers gives it
 * (ImmutableSandboxedEnvironment, trim_blocks, lstrip_blocks, loop controls, `generation` blocks,
 * raise_exception, strftime_now, tojson with ensure_ascii=False).
 *
 * Every character it writes carries a mark: from the template, or from the caller's values.
 * Filters, slices and concatenation keep the marks, so that only template characters can form
 * control tokens. A construct that we cannot run is refused at compile time with line and
 * construct.
 */
#ifndef CSN_TEXT_TEMPLATE_H
#define CSN_TEXT_TEMPLATE_H

#include "base/error.h"
#include "base/json.h"
#include "base/str.h"

typedef struct csn_template csn_template;

/* Compiles; source is copied. Errors: CAISSON_E_TEMPLATE, section "chat_template", tensor
 * "line N: construct"; CAISSON_E_LIMIT when it is nested past CAISSON_MAX_TEMPLATE_DEPTH or longer
 * than CAISSON_MAX_TEMPLATE_OUTPUT. */
caisson_status csn_template_compile(csn_str source, csn_template **ret, caisson_error *err);
void csn_template_free(csn_template *t);

typedef struct csn_rendering {
    csn_buf text;
    csn_buf trusted; /* one byte a byte of text: 1 = written by the template */
} csn_rendering;
void csn_rendering_free(csn_rendering *r);

typedef struct csn_template_input {
    const csn_jval *vars; /* an object: its members become the template's variables
                             (messages, tools, documents, add_generation_prompt, ...) */
    /* Variables that are control text, trusted like the template's own characters
     * (bos_token, eos_token, ...): pairs of name and value. */
    const csn_str (*trusted_vars)[2];
    size_t n_trusted_vars;
    /* What strftime_now shows, as datetime.now() does: seconds since 1970, and how far the host's
     * local time is ahead of UTC. A member `now` of vars overrides both: a number of seconds, shown
     * in UTC, or text "YYYY-MM-DD[ HH:MM:SS]", shown as it stands. */
    int64_t now_unix;
    int32_t utc_offset_s;
} csn_template_input;

/* Errors: CAISSON_E_TEMPLATE: tensor "raise_exception" and the template's own sentence in `what`,
 * or tensor "line N" and what went wrong there; CAISSON_E_LIMIT (steps, depth, text, memory).
 * Nothing is replaced: what jinja2 refuses is refused. Thread-safe on one template. */
caisson_status csn_template_render(const csn_template *t, const csn_template_input *in,
                                   csn_rendering *ret, caisson_error *err);

#endif
