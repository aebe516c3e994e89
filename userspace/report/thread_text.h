/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PTWATCH_REPORT_THREAD_TEXT_H
#define PTWATCH_REPORT_THREAD_TEXT_H

#include <stdint.h>

#define PTW_THREAD_TEXT	40	/* bytes that are enough */

/** ptw_thread_text() - "4242 (server)"; "4242" where nothing told its name. Return: @buf, of PTW_THREAD_TEXT bytes. */
char *ptw_thread_text(int32_t tid, const char *comm, char *buf);

#endif /* PTWATCH_REPORT_THREAD_TEXT_H */
