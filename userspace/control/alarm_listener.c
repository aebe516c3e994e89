// SPDX-License-Identifier: BSD-2-Clause
#include "control/alarm_listener.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <netlink/errno.h>
#include <netlink/genl/ctrl.h>
#include <netlink/genl/genl.h>
#include <netlink/netlink.h>

#include <linux/ptwatch.h>

/* An alarm with a full stack and registers is about 1 KiB; a storm of a few thousand should fit. */
#define RECEIVE_BUFFER (4 << 20)

struct ptw_alarm_listener {
	struct nl_sock *socket;
	void (*alarm)(const struct ptw_alarm *alarm, void *arg);
	void *arg;
	struct ptw_error *err;
	bool failed;		/* a message of this round was malformed */
	bool overrun;		/* messages were lost behind last_seq */
	uint64_t overruns;
	uint64_t lost;
	uint64_t last_seq;	/* 0: none yet */
	uint64_t seen[PTWATCH_READ_MAX];	/* numbers of the alarms that the backlog held */
	size_t seen_count;
};

/*
 * Lengths are minima and types are checked by length only, as netlink does: a longer attribute of a newer
 * module still parses. (libnl's NLA_STRING is the one that insists on the NUL.)
 */
static const struct nla_policy policy[PTWATCH_A_MAX + 1] = {
	[PTWATCH_A_SEQ]		 = { .type = NLA_U64 },
	[PTWATCH_A_WATCH]	 = { .type = NLA_U32 },
	[PTWATCH_A_LABEL]	 = { .type = NLA_STRING, .maxlen = 128 },
	[PTWATCH_A_TIME]	 = { .type = NLA_U64 },
	[PTWATCH_A_TSC]		 = { .type = NLA_U64 },
	[PTWATCH_A_CPU]		 = { .type = NLA_U32 },
	[PTWATCH_A_PID]		 = { .type = NLA_U32 },
	[PTWATCH_A_TGID]	 = { .type = NLA_U32 },
	[PTWATCH_A_COMM]	 = { .type = NLA_STRING, .maxlen = 16 },
	[PTWATCH_A_CGROUP]	 = { .type = NLA_U64 },
	[PTWATCH_A_ACCESS]	 = { .type = NLA_U32 },
	[PTWATCH_A_ADDRESS]	 = { .type = NLA_U64 },
	[PTWATCH_A_LEN]		 = { .type = NLA_U32 },
	[PTWATCH_A_IP]		 = { .type = NLA_U64 },
	[PTWATCH_A_OLD]		 = { .type = NLA_U64 },
	[PTWATCH_A_NEW]		 = { .type = NLA_U64 },
	[PTWATCH_A_STACK]	 = { .type = NLA_UNSPEC },
	[PTWATCH_A_REGS]	 = { .type = NLA_UNSPEC },
	[PTWATCH_A_TRACE_STATE]	 = { .type = NLA_U32 },
	[PTWATCH_A_TRACE_BANK]	 = { .type = NLA_U32 },
	[PTWATCH_A_TRACE_OFFSET] = { .type = NLA_U64 },
	[PTWATCH_A_TRACE_SIZE]	 = { .type = NLA_U64 },
	[PTWATCH_A_LOST]	 = { .type = NLA_U64 },
	[PTWATCH_A_HIT_ADDRESS]	 = { .type = NLA_U64 },
	[PTWATCH_A_USER_STACK]	 = { .type = NLA_UNSPEC },
	[PTWATCH_A_ACTIONS]	 = { .type = NLA_U32 },
};

/* What every message carries. */
static const int mandatory[] = {
	PTWATCH_A_SEQ, PTWATCH_A_WATCH, PTWATCH_A_TIME, PTWATCH_A_TSC, PTWATCH_A_CPU, PTWATCH_A_PID,
	PTWATCH_A_TGID, PTWATCH_A_COMM, PTWATCH_A_CGROUP, PTWATCH_A_ACCESS,
	PTWATCH_A_ADDRESS, PTWATCH_A_LEN, PTWATCH_A_IP,
	PTWATCH_A_LOST,
};

static uint64_t u64_of(struct nlattr **attr, int type)
{
	return attr[type] ? nla_get_u64(attr[type]) : 0;
}

static uint32_t u32_of(struct nlattr **attr, int type)
{
	return attr[type] ? nla_get_u32(attr[type]) : 0;
}

static void text_of(struct nlattr **attr, int type, char *buf, size_t size)
{
	buf[0] = '\0';
	if (attr[type])
		nla_strlcpy(buf, attr[type], size);
}

static size_t array_of(struct nlattr **attr, int type, uint64_t *values, size_t max)
{
	size_t count;

	if (!attr[type])
		return 0;
	count = nla_len(attr[type]) / sizeof(*values);
	if (count > max)
		count = max;
	/* Attributes are aligned to 4 bytes only. */
	memcpy(values, nla_data(attr[type]), count * sizeof(*values));
	return count;
}

int ptw_alarm_parse(struct nlmsghdr *message, struct ptw_alarm *alarm, struct ptw_error *err)
{
	struct nlattr *attr[PTWATCH_A_MAX + 1];
	int ret;

	memset(alarm, 0, sizeof(*alarm));
	if (!genlmsg_valid_hdr(message, 0))
		return ptw_error_set(err, PTW_EXIT_FAILED,
				     "an alarm of the module is too short; program and module must be of one version");
	ret = genlmsg_parse(message, 0, attr, PTWATCH_A_MAX, policy);
	if (ret < 0)
		return ptw_error_set(err, PTW_EXIT_FAILED,
				     "an alarm of the module is malformed (%s); program and module must be of one version",
				     nl_geterror(ret));
	for (size_t i = 0; i < sizeof(mandatory) / sizeof(mandatory[0]); i++)
		if (!attr[mandatory[i]])
			return ptw_error_set(err, PTW_EXIT_FAILED,
					     "an alarm of the module lacks attribute %d; program and module must be of one version",
					     mandatory[i]);
	if ((attr[PTWATCH_A_STACK] && nla_len(attr[PTWATCH_A_STACK]) % sizeof(uint64_t)) ||
	    (attr[PTWATCH_A_USER_STACK] && nla_len(attr[PTWATCH_A_USER_STACK]) % sizeof(uint64_t)) ||
	    (attr[PTWATCH_A_REGS] && nla_len(attr[PTWATCH_A_REGS]) % sizeof(uint64_t)))
		return ptw_error_set(err, PTW_EXIT_FAILED,
				     "an alarm of the module has a cut array; program and module must be of one version");

	alarm->seq = u64_of(attr, PTWATCH_A_SEQ);
	alarm->watch = u32_of(attr, PTWATCH_A_WATCH);
	text_of(attr, PTWATCH_A_LABEL, alarm->label, sizeof(alarm->label));
	alarm->time = u64_of(attr, PTWATCH_A_TIME);
	alarm->tsc = u64_of(attr, PTWATCH_A_TSC);
	alarm->cpu = u32_of(attr, PTWATCH_A_CPU);
	alarm->pid = u32_of(attr, PTWATCH_A_PID);
	alarm->tgid = u32_of(attr, PTWATCH_A_TGID);
	text_of(attr, PTWATCH_A_COMM, alarm->comm, sizeof(alarm->comm));
	alarm->cgroup = u64_of(attr, PTWATCH_A_CGROUP);
	alarm->access = u32_of(attr, PTWATCH_A_ACCESS);
	alarm->address = u64_of(attr, PTWATCH_A_ADDRESS);
	alarm->len = u32_of(attr, PTWATCH_A_LEN);
	alarm->ip = u64_of(attr, PTWATCH_A_IP);
	alarm->have_values = attr[PTWATCH_A_OLD] && attr[PTWATCH_A_NEW];
	alarm->old_value = u64_of(attr, PTWATCH_A_OLD);
	alarm->new_value = u64_of(attr, PTWATCH_A_NEW);
	alarm->stack_count = array_of(attr, PTWATCH_A_STACK, alarm->stack, PTW_ALARM_STACK_MAX);
	alarm->user_count = array_of(attr, PTWATCH_A_USER_STACK, alarm->user_stack, PTW_ALARM_USER_MAX);
	alarm->hit_address = u64_of(attr, PTWATCH_A_HIT_ADDRESS);
	alarm->actions = u32_of(attr, PTWATCH_A_ACTIONS);
	alarm->have_regs =
		array_of(attr, PTWATCH_A_REGS, alarm->regs, PTWATCH_REG_COUNT) == PTWATCH_REG_COUNT;
	alarm->have_trace = !!attr[PTWATCH_A_TRACE_STATE];
	alarm->trace_state = u32_of(attr, PTWATCH_A_TRACE_STATE);
	alarm->trace_bank = u32_of(attr, PTWATCH_A_TRACE_BANK);
	alarm->trace_offset = u64_of(attr, PTWATCH_A_TRACE_OFFSET);
	alarm->trace_size = u64_of(attr, PTWATCH_A_TRACE_SIZE);
	alarm->lost = u64_of(attr, PTWATCH_A_LOST);
	return 0;
}

static int received(struct nl_msg *msg, void *arg)
{
	struct ptw_alarm_listener *listener = arg;
	struct nlmsghdr *message = nlmsg_hdr(msg);
	struct ptw_alarm alarm;

	if (!genlmsg_valid_hdr(message, 0) || genlmsg_hdr(message)->cmd != PTWATCH_CMD_ALARM)
		return NL_OK;
	if (ptw_alarm_parse(message, &alarm, listener->failed ? NULL : listener->err)) {
		listener->failed = true;
		return NL_OK;
	}
	for (size_t i = 0; i < listener->seen_count; i++)
		if (listener->seen[i] == alarm.seq)
			return NL_OK;
	if (listener->overrun && listener->last_seq && alarm.seq > listener->last_seq + 1)
		listener->lost += alarm.seq - listener->last_seq - 1;
	listener->overrun = false;
	listener->last_seq = alarm.seq;
	listener->alarm(&alarm, listener->arg);
	return NL_OK;
}

struct ptw_alarm_listener *ptw_alarm_listener_open(struct ptw_error *err)
{
	struct ptw_alarm_listener *listener = calloc(1, sizeof(*listener));
	int size = RECEIVE_BUFFER, group, ret;

	if (listener)
		listener->socket = nl_socket_alloc();
	if (!listener || !listener->socket) {
		free(listener);
		ptw_error_set(err, PTW_EXIT_FAILED, "out of memory");
		return NULL;
	}
	ret = genl_connect(listener->socket);
	if (ret < 0) {
		ptw_error_set(err, PTW_EXIT_FAILED, "cannot open a netlink socket: %s", nl_geterror(ret));
		goto fail;
	}
	group = genl_ctrl_resolve_grp(listener->socket, PTWATCH_GENL_NAME, PTWATCH_GENL_GROUP);
	if (group < 0) {
		ptw_error_set(err, PTW_EXIT_UNSUPPORTED,
			      "the kernel has no netlink family '%s' with group '%s' (%s); load the module: modprobe ptwatch",
			      PTWATCH_GENL_NAME, PTWATCH_GENL_GROUP, nl_geterror(group));
		goto fail;
	}
	/* Multicast messages answer no request, so their sequence numbers follow none. */
	nl_socket_disable_seq_check(listener->socket);
	ret = nl_socket_modify_cb(listener->socket, NL_CB_VALID, NL_CB_CUSTOM, received, listener);
	if (ret >= 0)
		ret = nl_socket_set_nonblocking(listener->socket);
	if (ret >= 0)
		ret = nl_socket_add_membership(listener->socket, group);
	if (ret < 0) {
		if (ret == -NLE_PERM)
			ptw_error_set(err, PTW_EXIT_FAILED,
				      "listening to alarms needs root (CAP_SYS_ADMIN); run it with sudo");
		else
			ptw_error_set(err, PTW_EXIT_FAILED, "cannot listen to alarms: %s", nl_geterror(ret));
		goto fail;
	}
	/*
	 * Beyond net.core.rmem_max with CAP_NET_ADMIN, up to it without; a small buffer is no reason to
	 * fail.
	 */
	if (setsockopt(nl_socket_get_fd(listener->socket), SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)))
		setsockopt(nl_socket_get_fd(listener->socket), SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
	return listener;
fail:
	ptw_alarm_listener_close(listener);
	return NULL;
}

void ptw_alarm_listener_close(struct ptw_alarm_listener *listener)
{
	if (!listener)
		return;
	nl_socket_free(listener->socket);
	free(listener);
}

int ptw_alarm_listener_fd(const struct ptw_alarm_listener *listener)
{
	return nl_socket_get_fd(listener->socket);
}

int ptw_alarm_listener_receive(struct ptw_alarm_listener *listener,
			       void (*alarm)(const struct ptw_alarm *alarm, void *arg), void *arg,
			       struct ptw_error *err)
{
	int ret;

	listener->alarm = alarm;
	listener->arg = arg;
	listener->err = err;
	listener->failed = false;
	/* In a storm there is always one more: let the caller look at its signals and limits now and then. */
	for (int i = 0; i < 256; i++) {
		ret = nl_recvmsgs_default(listener->socket);
		if (ret >= 0 || ret == -NLE_INTR)
			continue;
		if (ret == -NLE_AGAIN)
			break;
		/* libnl reports ENOBUFS, the overflow of the socket's buffer, as NLE_NOMEM. */
		if (ret == -NLE_NOMEM) {
			listener->overrun = true;
			listener->overruns++;
			continue;
		}
		return ptw_error_set(err, PTW_EXIT_FAILED, "cannot receive alarms: %s", nl_geterror(ret));
	}
	return listener->failed ? -1 : 0;
}

static int received_kept(struct nl_msg *msg, void *arg)
{
	struct ptw_alarm_listener *listener = arg;
	struct nlmsghdr *message = nlmsg_hdr(msg);
	struct ptw_alarm alarm;

	if (!genlmsg_valid_hdr(message, 0) || genlmsg_hdr(message)->cmd != PTWATCH_CMD_ALARM)
		return NL_OK;
	if (ptw_alarm_parse(message, &alarm, listener->failed ? NULL : listener->err)) {
		listener->failed = true;
		return NL_OK;
	}
	if (listener->seen_count < PTWATCH_READ_MAX)
		listener->seen[listener->seen_count++] = alarm.seq;
	listener->alarm(&alarm, listener->arg);
	return NL_OK;
}

int ptw_alarm_listener_backlog(struct ptw_alarm_listener *listener,
			       void (*alarm)(const struct ptw_alarm *alarm, void *arg), void *arg,
			       struct ptw_error *err)
{
	/* A socket of its own, so that answers don't mix with the alarms that come meanwhile. */
	struct nl_sock *socket = nl_socket_alloc();
	int family, ret;

	if (!socket)
		return ptw_error_set(err, PTW_EXIT_FAILED, "out of memory");
	listener->alarm = alarm;
	listener->arg = arg;
	listener->err = err;
	listener->failed = false;
	ret = genl_connect(socket);
	family = ret < 0 ? ret : genl_ctrl_resolve(socket, PTWATCH_GENL_NAME);
	ret = family < 0 ? family : nl_socket_modify_cb(socket, NL_CB_VALID, NL_CB_CUSTOM, received_kept, listener);
	if (ret >= 0)
		ret = genl_send_simple(socket, family, PTWATCH_CMD_BACKLOG, PTWATCH_GENL_VERSION, NLM_F_DUMP);
	if (ret >= 0)
		ret = nl_recvmsgs_default(socket);
	nl_socket_free(socket);
	if (ret == -NLE_PERM)
		return ptw_error_set(err, PTW_EXIT_FAILED, "listening to alarms needs root (CAP_SYS_ADMIN); run it with sudo");
	if (ret < 0)
		return ptw_error_set(err, PTW_EXIT_FAILED, "cannot ask for the alarms that were kept: %s", nl_geterror(ret));
	return listener->failed ? -1 : 0;
}

uint64_t ptw_alarm_listener_overruns(const struct ptw_alarm_listener *listener, uint64_t *lost)
{
	if (lost)
		*lost = listener->lost;
	return listener->overruns;
}
