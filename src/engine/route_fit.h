/* SPDX-License-Identifier: Apache-2.0 */
/* header.routing of a file: how sure a choice among its skills is, and what is like none of them
 * (facts 10.4), from hidden states that the skills keep of prompts they were not fitted on. */
#ifndef CSN_ENGINE_ROUTE_FIT_H
#define CSN_ENGINE_ROUTE_FIT_H

#include "engine/route.h"

typedef struct csn_routing {
    float temperature;   /* of the softmax over -raw */
    float novelty_theta; /* above it a prompt is like none of the skills */
    uint32_t n_samples;  /* hidden states that both were fitted on */
} csn_routing;

/* skills: [n], each with its selection; those that share a phi_layer are compared. The temperature
 * is the one of a geometric grid that makes the true skills likeliest; one in twenty of the states
 * that are kept may look new. n_samples 0: no skill keeps any. CAISSON_E_LIMIT: there are too many
 * to compare all with all; NOMEM. */
caisson_status csn_routing_fit(const csn_cmf_skill *skills, uint32_t n, uint32_t hidden,
                               csn_routing *ret, caisson_error *err);
/* As the value of header.routing. */
void csn_routing_write(csn_jw *w, const csn_routing *r);

#endif
