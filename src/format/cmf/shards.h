/* SPDX-License-Identifier: Apache-2.0 */
/* Names of shards (facts 11): BASE-00002-of-00003.cmf. Opening them is csn_cmf_open_model. */
#ifndef CSN_FORMAT_CMF_SHARDS_H
#define CSN_FORMAT_CMF_SHARDS_H

#include "format/cmf/cmf_internal.h"

enum { CSN_CMF_MAX_SHARDS = 99999 }; /* five digits */

typedef struct csn_cmf_shard_place {
    csn_str base; /* path and name up to the numbers; points into the path */
    uint32_t no, count;
} csn_cmf_shard_place;

/* False when the path is not that of a shard; the numbers may be anything. */
bool csn_cmf_shard_name(csn_str path, csn_cmf_shard_place *ret);
/* The other way round; *ret holds nothing else. */
caisson_status csn_cmf_shard_path(csn_str base, uint32_t no, uint32_t count, csn_buf *ret,
                                  caisson_error *err);
/* PARSE when another file's envelope lies right behind the last byte that is in use. */
caisson_status csn_cmf_check_joined(const csn_cmf *c, caisson_error *err);

#endif
