/* SPDX-License-Identifier: Apache-2.0 */
/* Between filters.c (text, the table), numfilters.c and seqfilters.c. */
#ifndef CSN_TEXT_TEMPLATE_FILTERS_INTERNAL_H
#define CSN_TEXT_TEMPLATE_FILTERS_INTERNAL_H

#include "text/template/ast_internal.h"

enum { CSN_OP_NEGATE = TOK_SUB, CSN_OP_PLUS = TOK_ADD };

caisson_status csn_filter_int_arg(trun *r, tval v, int64_t deflt, int64_t *ret);
caisson_status csn_filter_bool_arg(trun *r, tval v, bool *ret);

caisson_status csn_f_abs(trun *r, const tcall *c, tval *ret);
caisson_status csn_f_filesizeformat(trun *r, const tcall *c, tval *ret);
caisson_status csn_f_float(trun *r, const tcall *c, tval *ret);
caisson_status csn_f_int(trun *r, const tcall *c, tval *ret);
caisson_status csn_f_round(trun *r, const tcall *c, tval *ret);

caisson_status csn_f_batch(trun *r, const tcall *c, tval *ret);
caisson_status csn_f_dictsort(trun *r, const tcall *c, tval *ret);
caisson_status csn_f_first(trun *r, const tcall *c, tval *ret);
caisson_status csn_f_groupby(trun *r, const tcall *c, tval *ret);
caisson_status csn_f_items(trun *r, const tcall *c, tval *ret);
caisson_status csn_f_join(trun *r, const tcall *c, tval *ret);
caisson_status csn_f_last(trun *r, const tcall *c, tval *ret);
caisson_status csn_f_list(trun *r, const tcall *c, tval *ret);
caisson_status csn_f_map(trun *r, const tcall *c, tval *ret);
caisson_status csn_f_max(trun *r, const tcall *c, tval *ret);
caisson_status csn_f_min(trun *r, const tcall *c, tval *ret);
caisson_status csn_f_reject(trun *r, const tcall *c, tval *ret);
caisson_status csn_f_rejectattr(trun *r, const tcall *c, tval *ret);
caisson_status csn_f_reverse(trun *r, const tcall *c, tval *ret);
caisson_status csn_f_select(trun *r, const tcall *c, tval *ret);
caisson_status csn_f_selectattr(trun *r, const tcall *c, tval *ret);
caisson_status csn_f_slice(trun *r, const tcall *c, tval *ret);
caisson_status csn_f_sort(trun *r, const tcall *c, tval *ret);
caisson_status csn_f_sum(trun *r, const tcall *c, tval *ret);
caisson_status csn_f_unique(trun *r, const tcall *c, tval *ret);

#endif
