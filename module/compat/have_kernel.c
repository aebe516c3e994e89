// SPDX-License-Identifier: GPL-2.0
#include <linux/module.h>
#include <linux/perf_event.h>

extern int probe;
int probe;
