/* SPDX-License-Identifier: Apache-2.0 */
/* The chain over a list of candidates {id, logit, p}. Filters keep a prefix of the list in falling
 * order; whoever needs order sorts what it needs, so a greedy or a top_k = 40 pick does not sort a
 * whole vocabulary. Ties go to the lower id everywhere, so a pick depends on logits and seed alone.
 */
#include "engine/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

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
    bool is_sorted;      /* c[0..n) falls */
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

static void sort(csn_sampler *s) {
    if (!s->is_sorted) {
        qsort(s->c, s->n, sizeof(*s->c), by_logit);
        s->is_sorted = true;
    }
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

/* The k best candidates, sorted: a heap with the worst of them at its root. */
static void collect_best(csn_sampler *s, cursor *from, uint32_t k) {
    struct candidate c;
    while (s->n < k && next(from, &c)) {
        s->c[s->n++] = c;
    }
    sort(s); /* falling order, read backwards, is a heap */
    for (uint32_t i = 0; i < s->n / 2; i++) {
        struct candidate swap = s->c[i];
        s->c[i] = s->c[s->n - 1 - i];
        s->c[s->n - 1 - i] = swap;
    }
    while (next(from, &c)) {
        if (c.logit > s->c[0].logit) { /* on a tie the lower id is there already */
            s->c[0] = c;
            sift_down(s->c, s->n);
        }
    }
    s->is_sorted = false;
    sort(s);
}

static void collect(csn_sampler *s, cursor *from) {
    s->n = 0;
    s->is_sorted = false;
    if (s->o.top_k > 0 && (uint32_t)s->o.top_k < s->n_vocab) {
        collect_best(s, from, (uint32_t)s->o.top_k);
        return;
    }
    struct candidate c;
    while (next(from, &c)) {
        s->c[s->n++] = c;
    }
}

/* Probabilities of the candidates that are left; sorts them. */
static void softmax(csn_sampler *s) {
    sort(s);
    double sum = 0.0;
    for (uint32_t i = 0; i < s->n; i++) {
        s->c[i].p = expf(s->c[i].logit - s->c[0].logit);
        sum += (double)s->c[i].p;
    }
    for (uint32_t i = 0; i < s->n; i++) {
        s->c[i].p = (float)((double)s->c[i].p / sum);
    }
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
    softmax(s);
    double entropy = 0.0;
    double sum_of_exp = 0.0;
    float top = s->c[0].logit;
    for (uint32_t i = 0; i < s->n; i++) {
        double p = (double)s->c[i].p;
        entropy -= p > 0.0 ? p * log(p) : 0.0;
        sum_of_exp += exp((double)(s->c[i].logit - top));
    }
    double log_sum = log(sum_of_exp);
    for (uint32_t i = 0; i < s->n; i++) { /* distance between surprise and entropy */
        double surprise = log_sum - (double)(s->c[i].logit - top);
        s->c[i].p = (float)fabs(surprise - entropy);
    }
    qsort(s->c, s->n, sizeof(*s->c), by_p_rising);
    s->is_sorted = false;
    double mass = 0.0;
    for (uint32_t i = 0; i < s->n; i++) {
        mass += exp((double)(s->c[i].logit - top) - log_sum);
        if (mass > (double)s->o.typical_p) {
            s->n = i + 1;
            break;
        }
    }
    sort(s);
}

static void top_p(csn_sampler *s) {
    if (s->o.top_p >= 1.0f) {
        return;
    }
    softmax(s);
    double mass = 0.0;
    for (uint32_t i = 0; i < s->n; i++) {
        mass += (double)s->c[i].p;
        if (mass >= (double)s->o.top_p) {
            s->n = i + 1;
            return;
        }
    }
}

/* Keeps candidates whose probability is at least min_p times the best one's. */
static void min_p(csn_sampler *s) {
    if (s->o.min_p <= 0.0f) {
        return;
    }
    sort(s);
    double least = (double)s->c[0].logit + log((double)s->o.min_p);
    uint32_t n = 1;
    while (n < s->n && (double)s->c[n].logit >= least) {
        n++;
    }
    s->n = n;
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
    for (uint32_t i = 0; i < s->n; i++) {
        s->c[i].logit /= s->o.temperature;
    }
    softmax(s);
    double u = uniform(s);
    double mass = 0.0;
    for (uint32_t i = 0; i < s->n; i++) {
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
