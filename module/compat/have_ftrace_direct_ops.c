// SPDX-License-Identifier: GPL-2.0
#include <linux/ftrace.h>

int probe(struct ftrace_ops *ops, unsigned long addr);
int probe(struct ftrace_ops *ops, unsigned long addr)
{
	return register_ftrace_direct(ops, addr) ?: unregister_ftrace_direct(ops, addr, true);
}
