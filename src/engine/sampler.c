/* SPDX-License-Identifier: Apache-2.0 */
/* The chain over a list of candidates {id, logit, p}. Filters keep a prefix of the list in falling
 * order, and the order is made only as far as somebody looks: neither a greedy pick nor one of
 * top_p alone sorts a whole vocabulary. Ties go to the lower id everywhere, and exp and log are our
 * own, so a pick depends on logits and seed alone, on every machine.
 */
#include "engine/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "kernels/vec.h"
#include "model/math.h"

enum { FIRST_SORTED = 128 }; /* candidates put in order at once, then three times as many, ... */

struct candidate {
    int32_t id;
    float logit;
    float p;
};

struct csn_sampler {
    csn_sampler_options o;
    uint32_t n_vocab;
    uint64_t random;     /* state of SplitMix64 */
    struct candidate *c; /* [n_vocab] */
    uint32_t n;          /* candidates that are left */
    uint32_t n_sorted;   /* c[0..n_sorted) are the best of them, falling */
    float *e;            /* [n_vocab] arguments of exp, then its values */
    uint32_t *count;     /* [n_vocab] occurrences in the window of the penalties */
    int32_t *window;     /* ring of the last accepted ids, [window_cap] */
    uint32_t window_cap, window_n, window_at;
};

csn_sampler_options csn_sampler_defaults(void) {
    return (csn_sampler_options){.temperature = 0.8f,
                                 .top_k = 40,
                                 .top_p = 0.95f,
                                 .min_p = 0.05f,
                                 .typical_p = 1.0f,
                                 .repeat_penalty = 1.0f,
                                 .repeat_last_n = 64};
}

static caisson_status check(const csn_sampler_options *o, caisson_error *err) {
    const struct {
        const char *name;
        float v, lo, hi;
    } ranges[] = {{"temperature", o->temperature, -1e6f, 1e6f},
                  {"top_p", o->top_p, 0.0f, 1.0f},
                  {"min_p", o->min_p, 0.0f, 1.0f},
                  {"typical_p", o->typical_p, 0.0f, 1.0f},
                  {"repeat_penalty", o->repeat_penalty, 1e-6f, 1e6f},
                  {"presence_penalty", o->presence_penalty, -1e6f, 1e6f},
                  {"frequency_penalty", o->frequency_penalty, -1e6f, 1e6f}};
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        if (!(ranges[i].v >= ranges[i].lo && ranges[i].v <= ranges[i].hi)) {
            return CSN_FAIL(err, CAISSON_E_ARG, .section = "sampler",
                            .tensor = csn_str_from(ranges[i].name),
                            .what = "sampler option outside its range");
        }
    }
    if (o->repeat_last_n < -1) {
        return CSN_FAIL(err, CAISSON_E_ARG, .section = "sampler",
                        .tensor = CSN_STR("repeat_last_n"),
                        .what = "sampler option outside its range");
    }
    return CAISSON_OK;
}

caisson_status csn_sampler_new(const csn_sampler_options *o, uint32_t n_vocab, csn_sampler **ret,
                               caisson_error *err) {
    CSN_TRY(check(o, err));
    csn_sampler *s;
    CSN_TRY(CSN_NEW(1, &s, err));
    s->o = *o;
    s->n_vocab = n_vocab;
    s->random = o->seed;
    caisson_status status = CSN_NEW(n_vocab, &s->c, err);
    if (status == CAISSON_OK) {
        status = CSN_NEW(n_vocab, &s->e, err);
    }
    if (status == CAISSON_OK) {
        status = CSN_NEW(n_vocab, &s->count, err);
    }
    if (status == CAISSON_OK && o->repeat_last_n > 0) {
        s->window_cap = (uint32_t)o->repeat_last_n;
        status = CSN_NEW(s->window_cap, &s->window, err);
    }
    if (status != CAISSON_OK) {
        csn_sampler_free(s);
        return status;
    }
    *ret = s;
    return CAISSON_OK;
}

void csn_sampler_free(csn_sampler *s) {
    if (s == NULL) {
        return;
    }
    csn_free(s->c);
    csn_free(s->e);
    csn_free(s->count);
    csn_free(s->window);
    csn_free(s);
}

void csn_sampler_accept(csn_sampler *s, int32_t id) {
    if (id < 0 || (uint32_t)id >= s->n_vocab || s->o.repeat_last_n == 0) {
        return;
    }
    s->count[id]++;
    if (s->window_cap == 0) { /* all tokens count */
        return;
    }
    if (s->window_n == s->window_cap) {
        s->count[s->window[s->window_at]]--;
    } else {
        s->window_n++;
    }
    s->window[s->window_at] = id;
    s->window_at = (s->window_at + 1) % s->window_cap;
}

/* Falling logits, rising ids on a tie. */
static int by_logit(const void *a, const void *b) {
    const struct candidate *x = a;
    const struct candidate *y = b;
    if (x->logit != y->logit) {
        return x->logit > y->logit ? -1 : 1;
    }
    return x->id < y->id ? -1 : x->id > y->id;
}

static bool has_penalties(const csn_sampler_options *o) {
    return o->repeat_penalty != 1.0f || o->presence_penalty != 0.0f || o->frequency_penalty != 0.0f;
}

/* The logit of a token that stands `count` times in the window. */
static float penalised(const csn_sampler_options *o, float logit, uint32_t count) {
    logit = logit <= 0.0f ? logit * o->repeat_penalty : logit / o->repeat_penalty;
    return logit - ((float)count * o->frequency_penalty + o->presence_penalty);
}

/* The logits as candidates, in rising id; what is not a number, or -inf, is none. */
typedef struct cursor {
    const csn_sampler *s;
    const float *logits;
    uint32_t i;
    bool has_penalties;
} cursor;

static bool next(cursor *c, struct candidate *ret) {
    while (c->i < c->s->n_vocab) {
        uint32_t i = c->i++;
        float z = c->logits[i];
        if (!(z > -INFINITY)) {
            continue;
        }
        if (c->has_penalties && c->s->count[i] != 0) {
            z = penalised(&c->s->o, z, c->s->count[i]);
        }
        *ret = (struct candidate){(int32_t)i, z, 0.0f};
        return true;
    }
    return false;
}

/* Restores the heap [0, n) whose root, the worst candidate, may have become too good for it. */
static void sift_down(struct candidate *c, uint32_t n) {
    uint32_t i = 0;
    for (;;) {
        uint32_t worst = i;
        for (uint32_t child = 2 * i + 1; child <= 2 * i + 2 && child < n; child++) {
            worst = by_logit(&c[child], &c[worst]) > 0 ? child : worst;
        }
        if (worst == i) {
            return;
        }
        struct candidate swap = c[i];
        c[i] = c[worst];
        c[worst] = swap;
        i = worst;
    }
}

/* c[0..k) becomes a heap with its worst candidate at the root. */
static void make_heap(struct candidate *c, uint32_t k) {
    qsort(c, k, sizeof(*c), by_logit); /* falling order, read backwards, is one */
    for (uint32_t i = 0; i < k / 2; i++) {
        struct candidate swap = c[i];
        c[i] = c[k - 1 - i];
        c[k - 1 - i] = swap;
    }
}

/* Makes the order known for the k best candidates at least: the next best of the rest are gathered
 * in a heap, in n log k steps whatever the logits are. */
static void sort_to(csn_sampler *s, uint32_t k) {
    k = k < s->n ? k : s->n;
    while (s->n_sorted < k) {
        struct candidate *c = s->c + s->n_sorted;
        uint32_t n_rest = s->n - s->n_sorted;
        uint32_t n_next = s->n_sorted == 0 ? FIRST_SORTED : 3 * s->n_sorted;
        if (n_next > n_rest / 2) {
            n_next = n_rest;
        } else {
            make_heap(c, n_next);
            for (uint32_t i = n_next; i < n_rest; i++) {
                if (by_logit(&c[i], &c[0]) < 0) {
                    struct candidate swap = c[0];
                    c[0] = c[i];
                    c[i] = swap;
                    sift_down(c, n_next);
                }
            }
        }
        qsort(c, n_next, sizeof(*c), by_logit);
        s->n_sorted += n_next;
    }
}

/* Keeps the first n, which are in order. */
static void keep(csn_sampler *s, uint32_t n) {
    s->n = n;
    s->n_sorted = n;
}

/* The k best candidates, sorted. */
static void collect_best(csn_sampler *s, cursor *from, uint32_t k) {
    struct candidate c;
    while (s->n < k && next(from, &c)) {
        s->c[s->n++] = c;
    }
    make_heap(s->c, s->n);
    while (next(from, &c)) {
        if (c.logit > s->c[0].logit) { /* on a tie the lower id is there already */
            s->c[0] = c;
            sift_down(s->c, s->n);
        }
    }
    qsort(s->c, s->n, sizeof(*s->c), by_logit);
    s->n_sorted = s->n;
}

static void collect(csn_sampler *s, cursor *from) {
    s->n = 0;
    s->n_sorted = 0;
    if (s->o.top_k > 0 && (uint32_t)s->o.top_k < s->n_vocab) {
        collect_best(s, from, (uint32_t)s->o.top_k);
        return;
    }
    struct candidate c;
    while (next(from, &c)) {
        s->c[s->n++] = c;
    }
}

static float best_logit(const csn_sampler *s) {
    float best = s->c[0].logit;
    for (uint32_t i = 1; s->n_sorted == 0 && i < s->n; i++) {
        best = s->c[i].logit > best ? s->c[i].logit : best;
    }
    return best;
}

/* How far a logit lies below the best one: 0 for the best, also where that is infinite. */
static float below(float logit, float best) {
    return logit == best ? 0.0f : logit - best;
}

/* Probabilities of the candidates that are left, of logits over temperature. Returns the sum of the
 * exponentials, which is formed in the order of the list. */
static double softmax(csn_sampler *s, float temperature) {
    float top = best_logit(s);
    for (uint32_t i = 0; i < s->n; i++) { /* a small temperature makes -inf of this, never inf */
        s->e[i] = below(s->c[i].logit, top) / temperature;
    }
    csn_vec_get()->exp(s->e, s->n);
    double sum = 0.0;
    for (uint32_t i = 0; i < s->n; i++) {
        sum += (double)s->e[i];
    }
    for (uint32_t i = 0; i < s->n; i++) {
        s->c[i].p = (float)((double)s->e[i] / sum);
    }
    return sum;
}

/* Keeps the tokens whose surprise is closest to the entropy, up to mass typical_p. `p` is used as
 * the sort key in between. */
static int by_p_rising(const void *a, const void *b) {
    const struct candidate *x = a;
    const struct candidate *y = b;
    if (x->p != y->p) {
        return x->p < y->p ? -1 : 1;
    }
    return by_logit(a, b);
}

static void typical(csn_sampler *s) {
    if (s->o.typical_p >= 1.0f) {
        return;
    }
    double log_sum = csn_f64_log(softmax(s, 1.0f));
    double entropy = 0.0;
    float top = best_logit(s);
    for (uint32_t i = 0; i < s->n; i++) {
        double surprise = log_sum - (double)below(s->c[i].logit, top);
        entropy += s->c[i].p > 0.0f ? (double)s->c[i].p * surprise : 0.0;
    }
    for (uint32_t i = 0; i < s->n; i++) { /* distance between surprise and entropy */
        double surprise = log_sum - (double)below(s->c[i].logit, top);
        s->c[i].p = (float)fabs(surprise - entropy);
    }
    qsort(s->c, s->n, sizeof(*s->c), by_p_rising);
    s->n_sorted = 0;
    double mass = 0.0;
    for (uint32_t i = 0; i < s->n; i++) {
        double log_p = (double)below(s->c[i].logit, top) - log_sum;
        mass += log_p > -700.0 ? csn_f64_exp(log_p) : 0.0;
        if (mass > (double)s->o.typical_p) {
            s->n = i + 1;
            return;
        }
    }
}

static void top_p(csn_sampler *s) {
    if (s->o.top_p >= 1.0f) {
        return;
    }
    (void)softmax(s, 1.0f);
    double mass = 0.0;
    for (uint32_t i = 0; i < s->n; i++) {
        sort_to(s, i + 1);
        mass += (double)s->c[i].p;
        if (mass >= (double)s->o.top_p) {
            keep(s, i + 1);
            return;
        }
    }
}

/* Keeps candidates whose probability is at least min_p times the best one's. */
static void min_p(csn_sampler *s) {
    if (s->o.min_p <= 0.0f) {
        return;
    }
    double least = (double)best_logit(s) + csn_f64_log((double)s->o.min_p);
    sort_to(s, 1);
    uint32_t n = 1;
    while (n < s->n) {
        sort_to(s, n + 1);
        if (!((double)s->c[n].logit >= least)) {
            break;
        }
        n++;
    }
    keep(s, n);
}

static double uniform(csn_sampler *s) { /* [0, 1), SplitMix64 */
    s->random += UINT64_C(0x9E3779B97F4A7C15);
    uint64_t z = s->random;
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    z ^= z >> 31;
    return (double)(z >> 11) * 0x1p-53;
}

static int32_t draw(csn_sampler *s) {
    (void)softmax(s, s->o.temperature);
    double u = uniform(s);
    double mass = 0.0;
    for (uint32_t i = 0; i < s->n; i++) {
        sort_to(s, i + 1);
        mass += (double)s->c[i].p;
        if (u < mass) {
            return s->c[i].id;
        }
    }
    return s->c[s->n - 1].id; /* rounding left a crumb above the last sum */
}

/* The best candidate; false if there is none. */
static bool pick_best(cursor *from, int32_t *ret) {
    struct candidate best;
    struct candidate c;
    if (!next(from, &best)) {
        return false;
    }
    while (next(from, &c)) {
        best = c.logit > best.logit ? c : best;
    }
    *ret = best.id;
    return true;
}

caisson_status csn_sampler_pick(csn_sampler *s, const float *logits, int32_t *ret,
                                caisson_error *err) {
    cursor from = {s, logits, 0, has_penalties(&s->o)};
    if (s->o.temperature <= 0.0f) {
        if (pick_best(&from, ret)) {
            return CAISSON_OK;
        }
    } else {
        collect(s, &from);
        if (s->n > 0) {
            typical(s);
            top_p(s);
            min_p(s);
            *ret = draw(s);
            return CAISSON_OK;
        }
    }
    return CSN_FAIL(err, CAISSON_E_ARG, .section = "sampler",
                    .what = "no logit is a number: the model's weights are broken");
}
