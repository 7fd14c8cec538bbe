/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a WARP directory that say how text becomes tokens (warp facts 7). */
#ifndef CSN_CONVERT_WARP_TEXT_H
#define CSN_CONVERT_WARP_TEXT_H

#include "convert/source.h"
#include "format/warp/writer.h"

/* Of a source with a list of ranks (tokenizer.model or tiktoken.model): that list, specials.json
 * and, where its special tokens are those of a chat that we know, chat.json. Of one with a
 * tokenizer.json: that file, which only we read. Ranks cannot
 * say what it says: the format cuts text by one pattern, that of Kimi, and other tokenizers have
 * others. The chat template goes along as chat_template.jinja. */
caisson_status csn_warp_text_write(csn_fs *fs, const csn_source *s, const char *source_path,
                                   csn_warp_writer *w, const csn_log *log, caisson_error *err);

#endif
