/* SPDX-License-Identifier: Apache-2.0 */
#include "conversation.h"

#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/json.h"

enum { MAX_FILE = 64 << 20 };

static void free_message(caisson_message *m) {
    free((void *)(uintptr_t)m->role);
    free((void *)(uintptr_t)m->content);
}

bool cli_conversation_add(cli_conversation *c, const char *role, const char *content, size_t n) {
    if (c->n == c->cap) {
        size_t cap = c->cap == 0 ? 16 : c->cap * 2;
        caisson_message *more = realloc(c->messages, cap * sizeof(*more));
        if (more == NULL) {
            return false;
        }
        c->messages = more;
        c->cap = cap;
    }
    caisson_message m = {strdup(role), strndup(content, n)};
    if (m.role == NULL || m.content == NULL) {
        free_message(&m);
        return false;
    }
    c->messages[c->n++] = m;
    return true;
}

static bool has_system(const cli_conversation *c) {
    return c->n > 0 && strcmp(c->messages[0].role, "system") == 0;
}

bool cli_conversation_set_system(cli_conversation *c, const char *content) {
    if (has_system(c)) {
        free_message(&c->messages[0]);
        c->n--;
        memmove(c->messages, c->messages + 1, c->n * sizeof(*c->messages));
    }
    if (content[0] == '\0') {
        return true;
    }
    if (!cli_conversation_add(c, "system", content, strlen(content))) {
        return false;
    }
    caisson_message m = c->messages[c->n - 1];
    memmove(c->messages + 1, c->messages, (c->n - 1) * sizeof(*c->messages));
    c->messages[0] = m;
    return true;
}

void cli_conversation_drop_last(cli_conversation *c) {
    if (c->n > 0) {
        free_message(&c->messages[--c->n]);
    }
}

void cli_conversation_clear(cli_conversation *c, bool keep_system) {
    size_t keep = keep_system && has_system(c) ? 1 : 0;
    while (c->n > keep) {
        cli_conversation_drop_last(c);
    }
}

void cli_conversation_free(cli_conversation *c) {
    cli_conversation_clear(c, false);
    free(c->messages);
    *c = (cli_conversation){0};
}

caisson_status cli_conversation_save(const cli_conversation *c, const char *path,
                                     caisson_error *err) {
    csn_buf out = CSN_BUF_INIT(MAX_FILE);
    csn_jw w = csn_jw_begin(&out, err);
    w.pretty = true;
    csn_jw_array(&w);
    for (size_t i = 0; i < c->n; i++) {
        csn_jw_object(&w);
        csn_jw_put_str(&w, "role", csn_str_from(c->messages[i].role));
        csn_jw_put_str(&w, "content", csn_str_from(c->messages[i].content));
        csn_jw_object_end(&w);
    }
    csn_jw_array_end(&w);
    caisson_status status = csn_jw_end(&w);
    if (status == CAISSON_OK) {
        status = csn_buf_char(&out, '\n', err);
    }
    if (status == CAISSON_OK) {
        status = csn_fs_write_all(csn_fs_os(), path, csn_buf_view(&out), err);
    }
    csn_buf_free(&out);
    return status;
}

/* What is not kept would be lost without a word: tool calls, names, reasoning. */
static caisson_status check_keys(const csn_jval *message, caisson_error *err) {
    for (csn_jiter it = csn_jval_iter(message); csn_jiter_next(&it);) {
        if (!csn_str_is(it.key, "role") && !csn_str_is(it.key, "content") &&
            csn_jval_kind(it.value) != CSN_JSON_NULL) {
            return CSN_FAIL(err, CAISSON_E_PARSE, .tensor = it.key,
                            .what = "a message of chat has a role and a content alone");
        }
    }
    return CAISSON_OK;
}

static caisson_status read_messages(const csn_jval *list, cli_conversation *ret,
                                    caisson_error *err) {
    if (csn_jval_kind(list) != CSN_JSON_ARRAY) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .what = "not a list of messages");
    }
    for (csn_jiter it = csn_jval_iter(list); csn_jiter_next(&it);) {
        csn_str role, content;
        if (!csn_jval_str(csn_jval_get(it.value, "role"), &role) ||
            !csn_jval_str(csn_jval_get(it.value, "content"), &content)) {
            return CSN_FAIL(err, CAISSON_E_PARSE,
                            .what = "a message needs a role and a content, both text");
        }
        CSN_TRY(check_keys(it.value, err));
        if (memchr(role.ptr, '\0', role.len) != NULL ||
            memchr(content.ptr, '\0', content.len) != NULL) {
            return CSN_FAIL(err, CAISSON_E_PARSE, .what = "a message holds a NUL character");
        }
        if (!cli_conversation_add(ret, role.ptr, content.ptr, content.len)) {
            return csn_fail_nomem(err, content.len);
        }
    }
    return CAISSON_OK;
}

caisson_status cli_conversation_load(cli_conversation *c, const char *path, caisson_error *err) {
    csn_buf text = CSN_BUF_INIT(MAX_FILE);
    csn_json *doc = NULL;
    cli_conversation fresh = {0};
    caisson_status status = csn_fs_read_all(csn_fs_os(), path, MAX_FILE, &text, err);
    if (status == CAISSON_OK) {
        status = csn_json_parse(csn_buf_view(&text), 0, &doc, err);
    }
    if (status == CAISSON_OK) {
        status = read_messages(csn_json_root(doc), &fresh, err);
    }
    csn_json_free(doc);
    csn_buf_free(&text);
    if (status != CAISSON_OK) {
        csn_error_file(err, path);
        cli_conversation_free(&fresh);
        return status;
    }
    cli_conversation_free(c);
    *c = fresh;
    return CAISSON_OK;
}
