/* SPDX-License-Identifier: BSD-2-Clause */
/* The records of one trace, without threads. Private to flow/. */
#ifndef PTWATCH_FLOW_SOURCE_H
#define PTWATCH_FLOW_SOURCE_H

#include "flow/stream.h"

struct flow_source;

struct flow_source *flow_source_new(struct ptw_recording *rec, size_t trace, unsigned int flags,
				    struct ptw_error *err);
/** flow_source_fill() - up to @room (at least 8) further records. Return: how many; 0: the end. */
size_t flow_source_fill(struct flow_source *source, struct ptw_flow *out, size_t room);
void flow_source_totals(const struct flow_source *source, struct ptw_trace_totals *totals);
void flow_source_free(struct flow_source *source);

#endif /* PTWATCH_FLOW_SOURCE_H */
