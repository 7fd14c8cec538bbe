/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizer of a GGUF file as a Hugging Face tokenizer.json that encodes the same. */
#ifndef CSN_CONVERT_GGUF_TOKENIZER_H
#define CSN_CONVERT_GGUF_TOKENIZER_H

#include "format/gguf/gguf.h"

/* Kinds of `tokenizer.ggml.model`: "gpt2" (byte-level BPE; tokenizer.ggml.pre says how text is
 * cut), "llama" (SentencePiece BPE with byte fallback; the merges follow from the vocabulary). Any
 * other: CAISSON_E_UNSUPPORTED. out stays empty when the file has no tokenizer. */
caisson_status csn_gguf_tokenizer(const csn_gguf *g, csn_buf *out, caisson_error *err);

#endif
