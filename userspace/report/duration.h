/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PTWATCH_REPORT_DURATION_H
#define PTWATCH_REPORT_DURATION_H

#include <stddef.h>
#include <stdint.h>

#define PTW_DURATION	24	/* bytes that are enough */

/** ptw_duration() - "850ns", "41.234us", "1.204ms", "2.000s". Return: @buf, of PTW_DURATION bytes. */
char *ptw_duration(uint64_t ns, char *buf);

/** ptw_time() - "126.458006275", seconds. Return: @buf, of PTW_DURATION bytes. */
char *ptw_time(uint64_t ns, char *buf);

#endif /* PTWATCH_REPORT_DURATION_H */
