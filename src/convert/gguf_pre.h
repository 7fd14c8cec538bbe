/* SPDX-License-Identifier: Apache-2.0 */
/* What `tokenizer.ggml.pre` stands for: how the original tokenizer.json cuts text before the merges
 * of a byte-level vocabulary run. A name that is not in the table is refused, never guessed. */
#ifndef CSN_CONVERT_GGUF_PRE_H
#define CSN_CONVERT_GGUF_PRE_H

#include "base/str.h"

typedef struct csn_gguf_pre {
    const char *const *names;  /* NULL-terminated */
    const char *const *splits; /* regular expressions, each isolating its matches; or NULL */
    bool digits;               /* single digits come apart first */
    bool byte_level_regex;     /* the ByteLevel step cuts by GPT-2's own pattern */
    bool nfc;                  /* normaliser */
    bool ignore_merges;        /* a piece that is a token needs no merges */
    bool add_bos;              /* when the file does not say */
} csn_gguf_pre;

const csn_gguf_pre *csn_gguf_pre_find(csn_str name); /* NULL if unknown */

#endif
