/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a chat template, rendered with one set of messages. What the rendering promises is
 * checked: UTF-8, one mark a byte, and no trusted byte inside the messages' own text. */
#include <string.h>

#include "base/utf8.h"
#include "text/template/template.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char messages[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"\\u2603\\u2603\"}, {\"role\": \"user\", "
    "\"content\": \" \\u2603 <b> \\n\"}, {\"role\": \"assistant\", \"content\": null, "
    "\"tool_calls\": "
    "[{\"function\": {\"name\": \"f\", \"arguments\": {\"x\": [1, 2.5, true]}}}]}], \"tools\": "
    "[{\"type\": "
    "\"function\", \"function\": {\"name\": \"f\"}}], \"add_generation_prompt\": true, \"n\": 7, "
    "\"s\": "
    "\"a,b\"}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    caisson_error err;
    csn_json *doc;
    csn_template *t;
    csn_rendering out;
    if (csn_json_parse(csn_str_from(messages), 0, &doc, &err) != CAISSON_OK) {
        __builtin_trap();
    }
    csn_str source = csn_str_make((const char *)data, size);
    if (csn_template_compile(source, &t, &err) == CAISSON_OK) {
        const csn_str trusted[][2] = {{CSN_STR("bos_token"), CSN_STR("<s>")}};
        const csn_template_input in = {
            .vars = csn_json_root(doc), .trusted_vars = trusted, .n_trusted_vars = 1};
        if (csn_template_render(t, &in, &out, &err) == CAISSON_OK) {
            if (out.text.len != out.trusted.len || !csn_utf8_valid(csn_buf_view(&out.text), NULL)) {
                __builtin_trap();
            }
            /* The snowman stands only in messages, unless the template spells it some way. */
            size_t at =
                csn_str_find(csn_buf_view(&out.text), CSN_STR("\xe2\x98\x83\xe2\x98\x83"), 0);
            bool is_spelled = memchr(data, '\\', size) != NULL ||
                              memchr(data, 0xe2, size) != NULL || memchr(data, '%', size) != NULL ||
                              memchr(data, ':', size) != NULL;
            if (at != SIZE_MAX && !is_spelled && out.trusted.ptr[at] != 0) {
                __builtin_trap();
            }
            csn_rendering_free(&out);
        }
        csn_template_free(t);
    }
    csn_json_free(doc);
    return 0;
}
