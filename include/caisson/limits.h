/* SPDX-License-Identifier: Apache-2.0 */
/* Every limit that hostile input can meet, in one table. Passing one is CAISSON_E_LIMIT (or the
 * format's own code where its specification names one), never a crash, a hang or a huge
 * allocation. */
#ifndef CAISSON_LIMITS_H
#define CAISSON_LIMITS_H

#define CAISSON_MAX_JSON_DEPTH 64                /* nesting of arrays and objects */
#define CAISSON_MAX_JSON_VALUES (1u << 26)       /* values in one document */
#define CAISSON_MAX_TEMPLATE_STEPS 10000000      /* evaluation steps of one rendering */
#define CAISSON_MAX_TEMPLATE_DEPTH 256           /* nested calls, blocks and expressions */
#define CAISSON_MAX_TEMPLATE_OUTPUT (16u << 20)  /* bytes of one rendering */
#define CAISSON_MAX_TEMPLATE_MEMORY (256u << 20) /* bytes that one rendering may use */
#define CAISSON_MAX_REGEX_STACK (1u << 20)       /* bytes of regex stack */
#define CAISSON_MAX_REGEX_MATCH 10000000         /* PCRE2 match limit of one piece */
#define CAISSON_MAX_TENSORS (1u << 20)           /* tensors of one model */
#define CAISSON_MAX_HEADER_BYTES (256u << 20)    /* JSON header of a container */
#define CAISSON_MAX_TOKENIZER_BYTES (256u << 20) /* tokenizer.json or its GGUF counterpart */
#define CAISSON_MAX_TOKENS (1u << 22)            /* entries of a vocabulary */

#endif
