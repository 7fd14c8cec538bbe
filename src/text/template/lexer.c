/* SPDX-License-Identifier: Apache-2.0 */
/* Source -> tokens, by the rules of jinja2's lexer with trim_blocks, lstrip_blocks and without
 * keep_trailing_newline: what a tag does to the white space around it is decided here, so the
 * parser sees text that is ready to be written. Tokens are made one at a time; text points into the
 * arena's copy of the source. */
#include "text/template/ast_internal.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "caisson/limits.h"
#include "text/template/pychar_internal.h"

static caisson_status fail(tlexer *l, const char *construct, const char *what) {
    char at[96];
    int n = snprintf(at, sizeof(at), "line %u: %s", l->line, construct);
    return CSN_FAIL(l->err, CAISSON_E_TEMPLATE, .section = "chat_template",
                    .tensor =
                        csn_str_make(at, (size_t)(n < (int)sizeof(at) ? n : (int)sizeof(at) - 1)),
                    .what = what);
}

caisson_status csn_tl_init(tlexer *l, csn_arena *arena, csn_str source, caisson_error *err) {
    *l = (tlexer){.arena = arena, .err = err, .line = 1, .is_line_start = true};
    size_t bad;
    if (!csn_utf8_valid(source, &bad)) {
        return CSN_FAIL(err, CAISSON_E_TEMPLATE, .section = "chat_template", CSN_AT(bad),
                        .what = "the template is not valid UTF-8");
    }
    if (source.len > CAISSON_MAX_TEMPLATE_OUTPUT) {
        return CSN_FAIL(err, CAISSON_E_LIMIT, .section = "chat_template",
                        .what = "the template is too long",
                        CSN_VALUES(CAISSON_MAX_TEMPLATE_OUTPUT, source.len));
    }
    csn_str copy;
    CSN_TRY(csn_arena_str(arena, source, &copy, err));
    char *p = (char *)copy.ptr;
    size_t o = 0;
    for (size_t i = 0; i < copy.len; i++) {
        if (p[i] == '\r') {
            i += i + 1 < copy.len && p[i + 1] == '\n';
            p[o++] = '\n';
        } else {
            p[o++] = p[i];
        }
    }
    o -= o > 0 && p[o - 1] == '\n'; /* keep_trailing_newline is off */
    l->src = csn_str_make(p, o);
    return CAISSON_OK;
}

static int at(const tlexer *l, size_t i) {
    return i < l->src.len ? (unsigned char)l->src.ptr[i] : -1;
}

static bool is_here(const tlexer *l, size_t i, const char *z) {
    size_t n = strlen(z);
    return i <= l->src.len && l->src.len - i >= n && memcmp(l->src.ptr + i, z, n) == 0;
}

/* End of the white space that starts at i. */
static size_t skip_space(const tlexer *l, size_t i) {
    uint32_t cp;
    size_t k;
    while ((k = csn_utf8_decode(l->src, i, &cp)) > 0 && csn_py_is_space(cp)) {
        i += k;
    }
    return i;
}

/* Start of the white space that ends at `end`, not before `from`. */
static size_t rskip_space(const tlexer *l, size_t from, size_t end) {
    while (end > from) {
        size_t i = end - 1;
        while (i > from && ((unsigned char)l->src.ptr[i] & 0xc0) == 0x80) {
            i--;
        }
        uint32_t cp;
        if (csn_utf8_decode(l->src, i, &cp) == 0 || !csn_py_is_space(cp)) {
            break;
        }
        end = i;
    }
    return end;
}

/* Moves to `pos`, counting lines; notes whether the piece ended with a line break. */
static void move_to(tlexer *l, size_t pos) {
    for (size_t i = l->pos; i < pos; i++) {
        l->line += l->src.ptr[i] == '\n';
    }
    l->is_line_start = pos > l->pos ? l->src.ptr[pos - 1] == '\n' : l->is_line_start;
    l->pos = pos;
}

/* Text [from, end) as the tag behind it leaves it: '-' strips all white space before the tag;
 * without a sign, blanks between a line's start and a block or comment go. */
static csn_str strip_text(const tlexer *l, size_t from, size_t end, int sign, bool is_print) {
    size_t cut = end;
    if (sign == '-') {
        cut = rskip_space(l, from, end);
    } else if (sign != '+' && !is_print) {
        size_t line = end;
        while (line > from && l->src.ptr[line - 1] != '\n') {
            line--;
        }
        if ((line > from || l->is_line_start) && rskip_space(l, line, end) == line) {
            cut = line;
        }
    }
    return csn_str_make(l->src.ptr + from, cut - from);
}

/* Position behind a block's or comment's end tag `close` found at i: the sign before it decides. */
static size_t behind_end(const tlexer *l, size_t i, int sign) {
    if (sign == '-') {
        return skip_space(l, i + 2);
    }
    return sign != '+' && at(l, i + 2) == '\n' ? i + 3 : i + 2;
}

/* If a `raw` tag begins at i (which is "{%"): the position behind it and its sign. */
static bool raw_tag(const tlexer *l, size_t i, const char *word, bool is_end, int *sign,
                    size_t *ret) {
    size_t j = i + 2;
    *sign = at(l, j) == '-' || at(l, j) == '+' ? at(l, j) : 0;
    j = skip_space(l, j + (*sign != 0));
    if (!is_here(l, j, word)) {
        return false;
    }
    j = skip_space(l, j + strlen(word));
    int close = at(l, j) == '-' || (is_end && at(l, j) == '+') ? at(l, j) : 0;
    j += close != 0;
    if (!is_here(l, j, "%}")) {
        return false;
    }
    *ret = close == '-' ? skip_space(l, j + 2) : is_end ? behind_end(l, j, close) : j + 2;
    return true;
}

static caisson_status raw_block(tlexer *l, csn_str *ret_text) {
    size_t from = l->pos;
    for (size_t i = from; i + 1 < l->src.len; i++) {
        int sign;
        size_t behind;
        if (l->src.ptr[i] == '{' && l->src.ptr[i + 1] == '%' &&
            raw_tag(l, i, "endraw", true, &sign, &behind)) {
            *ret_text = strip_text(l, from, i, sign, false);
            move_to(l, behind);
            return CAISSON_OK;
        }
    }
    if (from == l->src.len) { /* jinja2 sees nothing to complain of */
        *ret_text = csn_str_make("", 0);
        return CAISSON_OK;
    }
    return fail(l, "raw", "a raw block is not closed");
}

static caisson_status comment(tlexer *l) {
    size_t from = l->pos;
    size_t end = csn_ts_find(l->src, CSN_STR("#}"), from);
    if (end == SIZE_MAX && from == l->src.len) {
        return CAISSON_OK;
    }
    if (end == SIZE_MAX) {
        return fail(l, "{#", "a comment is not closed");
    }
    int sign = end > from && (l->src.ptr[end - 1] == '-' || l->src.ptr[end - 1] == '+')
                   ? l->src.ptr[end - 1]
                   : 0;
    move_to(l, behind_end(l, end, sign));
    return CAISSON_OK;
}

static ttok text_token(uint32_t line, csn_str text) {
    return (ttok){.kind = TOK_DATA, .line = line, .text = text};
}

/* Outside of tags: the next text or the start of a tag. Sets ret->kind to TOK_DATA with empty text
 * when a comment or an empty text was passed. */
static caisson_status root(tlexer *l, ttok *ret) {
    size_t from = l->pos;
    uint32_t line = l->line;
    size_t i = from;
    while (i < l->src.len &&
           !(l->src.ptr[i] == '{' &&
             (at(l, i + 1) == '%' || at(l, i + 1) == '{' || at(l, i + 1) == '#'))) {
        const char *brace = memchr(l->src.ptr + i + (l->src.ptr[i] == '{'), '{',
                                   l->src.len - i - (l->src.ptr[i] == '{'));
        i = brace == NULL ? l->src.len : (size_t)(brace - l->src.ptr);
    }
    if (i >= l->src.len) {
        *ret = text_token(line, csn_str_make(l->src.ptr + from, l->src.len - from));
        move_to(l, l->src.len);
        if (ret->text.len == 0) {
            ret->kind = TOK_EOF;
        }
        return CAISSON_OK;
    }
    int type = at(l, i + 1);
    int sign = 0;
    size_t behind = 0;
    if (type == '%' && raw_tag(l, i, "raw", false, &sign, &behind)) {
        *ret = text_token(line, strip_text(l, from, i, sign, false));
        move_to(l, behind);
        csn_str raw = {0};
        uint32_t raw_line = l->line;
        CSN_TRY(raw_block(l, &raw));
        l->pending = text_token(raw_line, raw);
        l->has_pending = true;
        return CAISSON_OK;
    }
    sign = at(l, i + 2) == '-' || at(l, i + 2) == '+' ? at(l, i + 2) : 0;
    *ret = text_token(line, strip_text(l, from, i, sign, type == '{'));
    move_to(l, i + 2 + (sign != 0));
    if (type == '#') {
        return comment(l);
    }
    l->pending = (ttok){.kind = type == '%' ? TOK_BLOCK_BEGIN : TOK_PRINT_BEGIN, .line = l->line};
    l->has_pending = true;
    l->state = type == '%' ? LEX_BLOCK : LEX_PRINT;
    return CAISSON_OK;
}

/* ---- inside tags ---- */

static bool is_digit_of(int c, int base) {
    if (c >= '0' && c <= '9') {
        return c - '0' < base;
    }
    int low = c | 0x20;
    return base == 16 && low >= 'a' && low <= 'f';
}

/* End of digits with single underscores between them, or `i` if there are none. */
static size_t digits(const tlexer *l, size_t i, int base) {
    size_t j = i;
    while (is_digit_of(at(l, j), base) ||
           (j > i && at(l, j) == '_' && is_digit_of(at(l, j + 1), base))) {
        j++;
    }
    return j;
}

/* The end of a float that starts at i, or i. */
static size_t float_end(const tlexer *l, size_t i) {
    if (i > 0 && at(l, i - 1) == '.') {
        return i;
    }
    size_t j = digits(l, i, 10);
    if (j == i) {
        return i;
    }
    size_t whole = j;
    if (at(l, j) == '.' && digits(l, j + 1, 10) > j + 1) {
        j = digits(l, j + 1, 10);
    }
    if ((at(l, j) | 0x20) == 'e') {
        size_t k = j + 1 + (at(l, j + 1) == '+' || at(l, j + 1) == '-');
        if (digits(l, k, 10) > k) {
            return digits(l, k, 10);
        }
    }
    return j > whole ? j : i;
}

static caisson_status number(tlexer *l, ttok *ret) {
    enum { MAX_DIGITS = 400 };
    char text[MAX_DIGITS + 1];
    size_t from = l->pos;
    size_t end = float_end(l, from);
    bool is_float = end > from;
    int base = 10;
    if (!is_float) {
        int c = at(l, from + 1) | 0x20;
        base = at(l, from) != '0' ? 10 : c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 1;
        if (base == 2 || base == 8 || base == 16) {
            size_t k = from + 2 + (at(l, from + 2) == '_');
            end = digits(l, k, base);
            from += 2;
            if (end == k) { /* "0x" alone: zero, then a name */
                base = 1;
                from -= 2;
            }
        }
        if (base == 1) {
            end = digits(l, from, 1);
            base = 10;
        } else if (base == 10) {
            end = digits(l, from, 10);
        }
    }
    size_t n = 0;
    for (size_t i = from; i < end; i++) {
        if (l->src.ptr[i] != '_') {
            if (n == MAX_DIGITS) {
                return fail(l, "number", "a number is too long");
            }
            text[n++] = l->src.ptr[i];
        }
    }
    text[n] = '\0';
    *ret = (ttok){.line = l->line, .kind = is_float ? TOK_FLOAT : TOK_INT};
    if (is_float) {
        ret->f = strtod(text, NULL);
    } else {
        uint64_t v = 0;
        for (size_t i = 0; i < n; i++) {
            int c = (unsigned char)text[i];
            uint64_t d = (uint64_t)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
            if (__builtin_mul_overflow(v, (uint64_t)base, &v) || __builtin_add_overflow(v, d, &v) ||
                v > INT64_MAX) {
                return fail(l, "integer", "an integer does not fit into 64 bits");
            }
        }
        ret->i = (int64_t)v;
    }
    move_to(l, end);
    return CAISSON_OK;
}

static int hex_value(int c) {
    return is_digit_of(c, 16) ? (c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10) : -1;
}

/* One escape of Python's unicode-escape at s[*i] (behind the backslash); appends to out, which has
 * room: no escape is shorter than what it stands for. */
static caisson_status escape(tlexer *l, csn_str s, size_t *i, char *out, size_t *o) {
    static const char from[] = "\\'\"abfnrtv";
    static const char to[] = "\\'\"\a\b\f\n\r\t\v";
    int c = (unsigned char)s.ptr[*i];
    const char *simple = c == 0 ? NULL : strchr(from, c);
    uint32_t cp = 0;
    if (simple != NULL) {
        out[(*o)++] = to[simple - from];
        (*i)++;
        return CAISSON_OK;
    }
    if (c == '\n') {
        (*i)++;
        return CAISSON_OK;
    }
    if (c >= '0' && c <= '7') {
        for (int k = 0; k < 3 && *i < s.len && s.ptr[*i] >= '0' && s.ptr[*i] <= '7'; k++) {
            cp = cp * 8 + (uint32_t)(s.ptr[(*i)++] - '0');
        }
        *o += csn_utf8_encode(cp, out + *o);
        return CAISSON_OK;
    }
    int want = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (want > 0) {
        (*i)++;
        for (int k = 0; k < want; k++) {
            int h = *i < s.len ? hex_value((unsigned char)s.ptr[*i]) : -1;
            if (h < 0) {
                return fail(l, "string", "a truncated escape in a string");
            }
            cp = cp << 4 | (uint32_t)h;
            (*i)++;
        }
        size_t k = csn_utf8_encode(cp, out + *o);
        if (k == 0) {
            return fail(l, "string", "an escape in a string is no Unicode character");
        }
        *o += k;
        return CAISSON_OK;
    }
    if (c == 'N') {
        return fail(l, "\\N", "named characters in strings are not supported");
    }
    if (c >= 0x80) {
        return fail(l, "string", "a backslash before a character that is not ASCII");
    }
    out[(*o)++] = '\\'; /* an unknown escape stays as it is */
    return CAISSON_OK;
}

static caisson_status string(tlexer *l, ttok *ret) {
    char quote = l->src.ptr[l->pos];
    size_t i = l->pos + 1;
    bool has_escape = false;
    while (i < l->src.len && l->src.ptr[i] != quote) {
        has_escape |= l->src.ptr[i] == '\\';
        i += l->src.ptr[i] == '\\' ? 2 : 1;
    }
    if (i >= l->src.len) {
        return fail(l, "string", "a string is not closed");
    }
    csn_str body = csn_str_make(l->src.ptr + l->pos + 1, i - l->pos - 1);
    *ret = (ttok){.kind = TOK_STRING, .line = l->line, .text = body};
    if (has_escape) {
        char *out;
        size_t o = 0;
        CSN_TRY(csn_arena_alloc(l->arena, body.len + 1, 1, (void **)&out, l->err));
        for (size_t k = 0; k < body.len;) {
            if (body.ptr[k] == '\\') {
                k++;
                CSN_TRY(escape(l, body, &k, out, &o));
            } else {
                out[o++] = body.ptr[k++];
            }
        }
        ret->text = csn_str_make(out, o);
    }
    move_to(l, i + 1);
    return CAISSON_OK;
}

static bool name_part(const tlexer *l, size_t i, bool is_first, size_t *ret_len) {
    uint32_t cp;
    size_t k = csn_utf8_decode(l->src, i, &cp);
    *ret_len = k;
    return k > 0 && (is_first ? csn_py_is_name_start(cp) : csn_py_is_name_part(cp));
}

static ttok_kind operator_kind(const tlexer *l, size_t i, size_t *ret_len) {
    static const struct {
        char text[3];
        uint8_t kind;
    } ops[] = {{"//", TOK_FLOORDIV}, {"**", TOK_POW},     {"==", TOK_EQ},    {"!=", TOK_NE},
               {">=", TOK_GE},       {"<=", TOK_LE},      {"+", TOK_ADD},    {"-", TOK_SUB},
               {"*", TOK_MUL},       {"/", TOK_DIV},      {"%", TOK_MOD},    {"~", TOK_TILDE},
               {"[", TOK_LBRACKET},  {"]", TOK_RBRACKET}, {"(", TOK_LPAREN}, {")", TOK_RPAREN},
               {"{", TOK_LBRACE},    {"}", TOK_RBRACE},   {">", TOK_GT},     {"<", TOK_LT},
               {"=", TOK_ASSIGN},    {".", TOK_DOT},      {":", TOK_COLON},  {"|", TOK_PIPE},
               {",", TOK_COMMA},     {";", TOK_SEMICOLON}};
    for (size_t k = 0; k < sizeof(ops) / sizeof(ops[0]); k++) {
        if (is_here(l, i, ops[k].text)) {
            *ret_len = strlen(ops[k].text);
            return (ttok_kind)ops[k].kind;
        }
    }
    return TOK_EOF;
}

static caisson_status balance(tlexer *l, ttok_kind kind) {
    char close = kind == TOK_LBRACE     ? '}'
                 : kind == TOK_LPAREN   ? ')'
                 : kind == TOK_LBRACKET ? ']'
                                        : 0;
    if (close != 0) {
        if (l->n_open == MAX_NESTING) {
            return CSN_FAIL(l->err, CAISSON_E_LIMIT, .section = "chat_template",
                            .what = "brackets are nested too deeply",
                            CSN_VALUES(MAX_NESTING, l->n_open + 1));
        }
        l->open[l->n_open++] = close;
        return CAISSON_OK;
    }
    char got = kind == TOK_RBRACE ? '}' : kind == TOK_RPAREN ? ')' : kind == TOK_RBRACKET ? ']' : 0;
    if (got != 0 && (l->n_open == 0 || l->open[--l->n_open] != got)) {
        return fail(l, (char[2]){got, '\0'}, "a closing bracket without its opening one");
    }
    return CAISSON_OK;
}

static bool end_tag(tlexer *l, ttok *ret) {
    size_t i = l->pos;
    bool is_block = l->state == LEX_BLOCK;
    int sign = at(l, i) == '-' || (is_block && at(l, i) == '+') ? at(l, i) : 0;
    i += sign != 0;
    if (l->n_open > 0 || !is_here(l, i, is_block ? "%}" : "}}")) {
        return false;
    }
    *ret = (ttok){.kind = is_block ? TOK_BLOCK_END : TOK_PRINT_END, .line = l->line};
    move_to(l, is_block ? behind_end(l, i, sign) : sign == '-' ? skip_space(l, i + 2) : i + 2);
    l->state = LEX_ROOT;
    return true;
}

static caisson_status inside(tlexer *l, ttok *ret) {
    if (end_tag(l, ret)) {
        return CAISSON_OK;
    }
    size_t space = skip_space(l, l->pos);
    if (space > l->pos) {
        move_to(l, space);
        if (end_tag(l, ret)) {
            return CAISSON_OK;
        }
    }
    int c = at(l, l->pos);
    size_t k;
    if (c < 0) {
        *ret = (ttok){.kind = TOK_EOF, .line = l->line};
        return CAISSON_OK;
    }
    if (c >= '0' && c <= '9') {
        return number(l, ret);
    }
    if (c == '\'' || c == '"') {
        return string(l, ret);
    }
    if (name_part(l, l->pos, true, &k)) {
        size_t end = l->pos + k;
        while (name_part(l, end, false, &k)) {
            end += k;
        }
        *ret = (ttok){.kind = TOK_NAME,
                      .line = l->line,
                      .text = csn_str_make(l->src.ptr + l->pos, end - l->pos)};
        move_to(l, end);
        return CAISSON_OK;
    }
    ttok_kind kind = operator_kind(l, l->pos, &k);
    if (kind == TOK_EOF) {
        return fail(l, (char[2]){(char)(c < 0x80 ? c : '?'), '\0'}, "an unexpected character");
    }
    CSN_TRY(balance(l, kind));
    *ret = (ttok){.kind = kind, .line = l->line, .text = csn_str_make(l->src.ptr + l->pos, k)};
    move_to(l, l->pos + k);
    return CAISSON_OK;
}

caisson_status csn_tl_next(tlexer *l, ttok *ret) {
    for (;;) {
        if (l->has_pending) {
            l->has_pending = false;
            *ret = l->pending;
        } else if (l->state != LEX_ROOT) {
            return inside(l, ret);
        } else {
            CSN_TRY(root(l, ret));
        }
        if (ret->kind != TOK_DATA || ret->text.len > 0) {
            return CAISSON_OK;
        }
    }
}
