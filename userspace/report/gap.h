/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PTWATCH_REPORT_GAP_H
#define PTWATCH_REPORT_GAP_H

#include <stddef.h>
#include <stdint.h>

#include "flow/stream.h"

/**
 * ptw_gap_describe() - a gap of the stream in words, for people
 * @ip: where the flow goes on, or where the walk stood; 0: unknown
 * Return: @buf.
 */
char *ptw_gap_describe(const char *text, uint64_t offset, uint64_t lost, uint64_t ip, char *buf, size_t size);

/** ptw_flow_describe_gap() - the same of a PTW_FLOW_GAP */
char *ptw_flow_describe_gap(const struct ptw_flow *gap, char *buf, size_t size);

/** ptw_flow_gap_kind() - the same string for gaps of the same kind; static */
const char *ptw_flow_gap_kind(const struct ptw_flow *gap);

#endif /* PTWATCH_REPORT_GAP_H */
