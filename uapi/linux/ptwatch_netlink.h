/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * ptwatch alarms over generic netlink.
 *
 * Family "ptwatch", multicast group "alarms". Joining the group needs CAP_SYS_ADMIN, because alarms
 * hold kernel addresses. The module sends one PTWATCH_CMD_ALARM message for each alarm whose watch
 * has PTWATCH_ACTION_EVENT. A listener that is too slow loses messages as with any netlink socket
 * (ENOBUFS); PTWATCH_A_SEQ tells how many.
 *
 * Alarms of persistent watches (PTWATCH_WATCH_PERSISTENT) are kept, the newest PTWATCH_READ_MAX of
 * them: a PTWATCH_CMD_BACKLOG request with NLM_F_DUMP (CAP_SYS_ADMIN) is answered by one
 * PTWATCH_CMD_ALARM message each. Who joins the group first and asks for the backlog then misses
 * none, and tells those that came both ways by PTWATCH_A_SEQ.
 *
 * Every message carries SEQ, WATCH, TIME, TSC, CPU, PID, TGID, COMM, CGROUP, ACCESS, ADDRESS, LEN,
 * IP, LOST; the others where they are known. All integers are in host byte order.
 */
#ifndef _UAPI_LINUX_PTWATCH_NETLINK_H
#define _UAPI_LINUX_PTWATCH_NETLINK_H

#define PTWATCH_GENL_NAME	"ptwatch"
#define PTWATCH_GENL_VERSION	1
#define PTWATCH_GENL_GROUP	"alarms"

enum ptwatch_genl_cmd {
	PTWATCH_CMD_UNSPEC,
	PTWATCH_CMD_ALARM,	/* multicast, and the answers to BACKLOG */
	PTWATCH_CMD_BACKLOG,	/* request, NLM_F_DUMP */
	__PTWATCH_CMD_MAX,
};
#define PTWATCH_CMD_MAX (__PTWATCH_CMD_MAX - 1)

/**
 * enum ptwatch_genl_attr - attributes of PTWATCH_CMD_ALARM
 * @PTWATCH_A_UNSPEC: unused
 * @PTWATCH_A_PAD: padding for 64-bit attributes
 * @PTWATCH_A_SEQ: u64, number of the alarm since the module was loaded, from 1, no gaps
 * @PTWATCH_A_WATCH: u32, ptwatch_watch.id
 * @PTWATCH_A_LABEL: string, ptwatch_watch.label; absent when empty
 * @PTWATCH_A_TIME: u64, CLOCK_MONOTONIC nanoseconds at the hit
 * @PTWATCH_A_TSC: u64, TSC at the hit (after the freeze)
 * @PTWATCH_A_CPU: u32
 * @PTWATCH_A_PID: u32, thread id in the initial pid namespace; 0: idle
 * @PTWATCH_A_TGID: u32, process id in the initial pid namespace
 * @PTWATCH_A_COMM: string, of the thread
 * @PTWATCH_A_CGROUP: u64, cgroup v2 id of the thread, as the inode number of its directory; 0: none
 * @PTWATCH_A_ACCESS: u32, PTWATCH_ACCESS_*
 * @PTWATCH_A_ADDRESS: u64, watched address; of a per-CPU variable this CPU's own
 * @PTWATCH_A_LEN: u32, watched bytes
 * @PTWATCH_A_IP: u64, next instruction for a data watch (the access is the one before it), the
 *	instruction itself for PTWATCH_ACCESS_X
 * @PTWATCH_A_OLD: u64, value before, from the last hit or from arming (zero-extended; a write in
 *	between that the hardware cannot report makes it stale); data watches only
 * @PTWATCH_A_NEW: u64, value read back at the hit, zero-extended; data watches only
 * @PTWATCH_A_STACK: array of u64, return addresses from the hit outwards, the first is IP
 * @PTWATCH_A_REGS: array of u64 in the order of enum ptwatch_reg
 * @PTWATCH_A_TRACE_STATE: u32, PTWATCH_STATE_* of the CPU's trace: FROZEN when this alarm froze it
 * @PTWATCH_A_TRACE_BANK: u32, bank that was frozen
 * @PTWATCH_A_TRACE_OFFSET: u64, ptwatch_control.head of the frozen trace
 * @PTWATCH_A_TRACE_SIZE: u64, bytes of trace frozen
 * @PTWATCH_A_LOST: u64, alarms of all watches dropped before this one, since the module was loaded
 * @PTWATCH_A_HIT_ADDRESS: u64, the part of a watch of more than 8 bytes that was hit, 8 bytes long;
 *	OLD and NEW are its value
 * @PTWATCH_A_SYMBOL: string, IP as the kernel calls it: "name+0xoffset/0xsize [module]"
 * @PTWATCH_A_USER_STACK: array of u64, the user code that made the system call, by its frame
 *	pointers: first its ip, then return addresses as far as they could be read without faulting;
 *	absent when the hit did not come from a system call (or from user code itself)
 * @PTWATCH_A_FREEZE: u32, how the trace was frozen: PTWATCH_FREEZE_*; with FROZEN only
 * @PTWATCH_A_ACTIONS: u32, PTWATCH_ACTION_* of the watch
 * @PTWATCH_A_UNREAD: u64, in what read(2) gives: alarms that were pushed out before they were read,
 *	since the file was opened
 */
enum ptwatch_genl_attr {
	PTWATCH_A_UNSPEC,
	PTWATCH_A_PAD,
	PTWATCH_A_SEQ,
	PTWATCH_A_WATCH,
	PTWATCH_A_LABEL,
	PTWATCH_A_TIME,
	PTWATCH_A_TSC,
	PTWATCH_A_CPU,
	PTWATCH_A_PID,
	PTWATCH_A_TGID,
	PTWATCH_A_COMM,
	PTWATCH_A_CGROUP,
	PTWATCH_A_ACCESS,
	PTWATCH_A_ADDRESS,
	PTWATCH_A_LEN,
	PTWATCH_A_IP,
	PTWATCH_A_OLD,
	PTWATCH_A_NEW,
	PTWATCH_A_STACK,
	PTWATCH_A_REGS,
	PTWATCH_A_TRACE_STATE,
	PTWATCH_A_TRACE_BANK,
	PTWATCH_A_TRACE_OFFSET,
	PTWATCH_A_TRACE_SIZE,
	PTWATCH_A_LOST,
	PTWATCH_A_HIT_ADDRESS,
	PTWATCH_A_SYMBOL,
	PTWATCH_A_USER_STACK,
	PTWATCH_A_FREEZE,
	PTWATCH_A_ACTIONS,
	PTWATCH_A_UNREAD,
	__PTWATCH_A_MAX,
};
#define PTWATCH_A_MAX (__PTWATCH_A_MAX - 1)

/* PTWATCH_A_FREEZE: what stopped the trace, and with it what is recorded behind the access. */
#define PTWATCH_FREEZE_HANDLER	0U	/* the watch's handler: some hundred instructions */
#define PTWATCH_FREEZE_EARLY	1U	/* code in front of the kernel's own: fewer */
#define PTWATCH_FREEZE_HARDWARE	2U	/* a TraceStop range on the #DB entry: none */

/* Order of the registers in PTWATCH_A_REGS. */
enum ptwatch_reg {
	PTWATCH_REG_AX, PTWATCH_REG_BX, PTWATCH_REG_CX, PTWATCH_REG_DX,
	PTWATCH_REG_SI, PTWATCH_REG_DI, PTWATCH_REG_BP, PTWATCH_REG_SP,
	PTWATCH_REG_R8, PTWATCH_REG_R9, PTWATCH_REG_R10, PTWATCH_REG_R11,
	PTWATCH_REG_R12, PTWATCH_REG_R13, PTWATCH_REG_R14, PTWATCH_REG_R15,
	PTWATCH_REG_IP, PTWATCH_REG_FLAGS,
	PTWATCH_REG_COUNT,
};

#endif /* _UAPI_LINUX_PTWATCH_NETLINK_H */
