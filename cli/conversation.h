/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of a chat, and their form in a file: the JSON list that `caisson render` reads.
 */
#ifndef CLI_CONVERSATION_H
#define CLI_CONVERSATION_H

#include "cli.h"

typedef struct cli_conversation {
    caisson_message *messages; /* [n], strings owned */
    size_t n, cap;
} cli_conversation;

/* False = out of memory; content has n bytes. */
bool cli_conversation_add(cli_conversation *c, const char *role, const char *content, size_t n);
/* The system message: replaced, added in front, or with "" removed. */
bool cli_conversation_set_system(cli_conversation *c, const char *content);
void cli_conversation_drop_last(cli_conversation *c);
void cli_conversation_clear(cli_conversation *c, bool keep_system);
void cli_conversation_free(cli_conversation *c);

/* A failure leaves the conversation, or the old file, as it was. */
caisson_status cli_conversation_save(const cli_conversation *c, const char *path,
                                     caisson_error *err);
caisson_status cli_conversation_load(cli_conversation *c, const char *path, caisson_error *err);

#endif
