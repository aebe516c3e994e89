/* SPDX-License-Identifier: BSD-2-Clause */
/* alarms.jsonl, the other direction of ptw_alarm_write_json(). */
#ifndef PTWATCH_RECORDING_ALARM_H
#define PTWATCH_RECORDING_ALARM_H

#include "recording/recording.h"

/**
 * ptw_alarms_read_json() - read a file that ptw_alarm_write_json() wrote
 * @alarm: out: array to be freed with free(); NULL when there is none
 *
 * Unknown keys are skipped; a key of the wrong kind is an error that names the line, and the alarms before it are there.
 */
int ptw_alarms_read_json(const char *path, struct ptw_alarm **alarm, size_t *count, struct ptw_error *err);

#endif /* PTWATCH_RECORDING_ALARM_H */
