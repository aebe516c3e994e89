/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Alarms over generic netlink (<linux/ptwatch_netlink.h>), received with libnl-3: it resolves the family,
 * checks attributes against a policy and knows netlink's padding and multi-message rules.
 */
#ifndef PTWATCH_CONTROL_ALARM_LISTENER_H
#define PTWATCH_CONTROL_ALARM_LISTENER_H

#include <stdint.h>

#include "common/error.h"
#include "recording/recording.h"

struct nlmsghdr;
struct ptw_alarm_listener;

/**
 * ptw_alarm_listener_open() - join the group of alarms; every alarm from now on is seen
 * Return: the listener, to be closed; NULL: @err tells (rights; no such family: PTW_EXIT_UNSUPPORTED).
 */
struct ptw_alarm_listener *ptw_alarm_listener_open(struct ptw_error *err);
void ptw_alarm_listener_close(struct ptw_alarm_listener *listener);

/** ptw_alarm_listener_fd() - readable (POLLIN) when alarms wait */
int ptw_alarm_listener_fd(const struct ptw_alarm_listener *listener);

/**
 * ptw_alarm_listener_receive() - hand the alarms that wait to @alarm, without blocking
 *
 * Returns after a few hundred at most, so poll again.
 * @alarm must not call this again. A malformed message fails with PTW_EXIT_FAILED; the next call goes on
 * behind it.
 */
int ptw_alarm_listener_receive(struct ptw_alarm_listener *listener,
			       void (*alarm)(const struct ptw_alarm *alarm, void *arg), void *arg,
			       struct ptw_error *err);

/**
 * ptw_alarm_listener_backlog() - hand the alarms of persistent watches that were kept to @alarm, oldest first
 *
 * ptw_alarm_listener_receive() does not repeat them.
 */
int ptw_alarm_listener_backlog(struct ptw_alarm_listener *listener,
			       void (*alarm)(const struct ptw_alarm *alarm, void *arg), void *arg,
			       struct ptw_error *err);

/**
 * ptw_alarm_listener_overruns() - how often the socket overflowed (ENOBUFS) since the listener was opened
 * @lost: out: numbers missing at those places, of which some may belong to watches without an event; may be
 * NULL
 */
uint64_t ptw_alarm_listener_overruns(const struct ptw_alarm_listener *listener, uint64_t *lost);

/** ptw_alarm_parse() - the alarm in a PTWATCH_CMD_ALARM message, which may be of any length and content */
int ptw_alarm_parse(struct nlmsghdr *message, struct ptw_alarm *alarm, struct ptw_error *err);

#endif /* PTWATCH_CONTROL_ALARM_LISTENER_H */
