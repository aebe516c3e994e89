/* SPDX-License-Identifier: BSD-2-Clause */
/* Control groups (v2): the kernel tells their ids, people their paths. */
#ifndef PTWATCH_CONTROL_CGROUP_H
#define PTWATCH_CONTROL_CGROUP_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

/**
 * ptw_cgroup_id() - the id of a group
 * @name: its directory, that below the mount of cgroup2 ("/system.slice/ssh.service", with or without the
 * slash), or the id itself
 */
int ptw_cgroup_id(const char *name, uint64_t *id, struct ptw_error *err);

/**
 * ptw_cgroup_path() - the path of a group below the mount of cgroup2, "/" for the root
 * Return: @buf; NULL: it is gone, or there is no cgroup2.
 */
char *ptw_cgroup_path(uint64_t id, char *buf, size_t size);

#endif /* PTWATCH_CONTROL_CGROUP_H */
