// SPDX-License-Identifier: BSD-2-Clause
/* <linux/ptwatch_netlink.h>, attribute by attribute, without a library in between. */
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <linux/ptwatch_netlink.h>

#include "guest.h"

#define NOBODY 65534

struct message {
	uint32_t pid, len;
	uint16_t type;
	struct genlmsghdr genl;
	struct nlattr *attr[PTWATCH_A_MAX + 1];
	unsigned int count[PTWATCH_A_MAX + 1];
	unsigned int unknown;
	char buffer[8192];
};

static const void *payload(const struct nlattr *a)
{
	return (const char *)a + NLA_HDRLEN;
}

static unsigned int payload_len(const struct nlattr *a)
{
	return a->nla_len - NLA_HDRLEN;
}

static void parse(struct nlattr **attr, unsigned int *count, unsigned int max, unsigned int *unknown,
		  char *p, int len)
{
	while (len >= NLA_HDRLEN) {
		struct nlattr *a = (struct nlattr *)p;
		unsigned int type = a->nla_type & NLA_TYPE_MASK;

		if (a->nla_len < NLA_HDRLEN || a->nla_len > len)
			return;
		if (type <= max) {
			attr[type] = a;
			if (count)
				count[type]++;
		} else if (unknown) {
			(*unknown)++;
		}
		p += NLA_ALIGN(a->nla_len);
		len -= NLA_ALIGN(a->nla_len);
	}
}

static int genl_socket(void)
{
	struct sockaddr_nl addr = { .nl_family = AF_NETLINK };
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC);

	if (fd < 0 || bind(fd, (struct sockaddr *)&addr, sizeof(addr)))
		return -1;
	return fd;
}

/* Return: 0, or -1 with errno: there is no such family or group. */
static int resolve(int fd, uint16_t *family, uint32_t *group, uint32_t *version)
{
	struct {
		struct nlmsghdr nl;
		struct genlmsghdr genl;
		struct nlattr attr;
		char name[8];
	} ask = {
		.nl = { sizeof(ask), GENL_ID_CTRL, NLM_F_REQUEST, 1, 0 },
		.genl = { CTRL_CMD_GETFAMILY, 1, 0 },
		.attr = { NLA_HDRLEN + sizeof(PTWATCH_GENL_NAME), CTRL_ATTR_FAMILY_NAME },
		.name = PTWATCH_GENL_NAME,
	};
	struct nlattr *attr[CTRL_ATTR_MAX + 1] = { 0 };
	static char answer[8192];
	struct nlmsghdr *nl = (struct nlmsghdr *)answer;
	char *p, *end;
	ssize_t n;

	if (send(fd, &ask, sizeof(ask), 0) != sizeof(ask))
		return -1;
	n = recv(fd, answer, sizeof(answer), 0);
	if (n < (ssize_t)sizeof(*nl))
		return -1;
	if (nl->nlmsg_type == NLMSG_ERROR) {
		errno = -((struct nlmsgerr *)NLMSG_DATA(nl))->error;
		return -1;
	}
	parse(attr, NULL, CTRL_ATTR_MAX, NULL, (char *)NLMSG_DATA(nl) + GENL_HDRLEN,
	      nl->nlmsg_len - NLMSG_HDRLEN - GENL_HDRLEN);
	errno = ENOENT;
	if (!attr[CTRL_ATTR_FAMILY_ID] || !attr[CTRL_ATTR_MCAST_GROUPS] || !attr[CTRL_ATTR_VERSION])
		return -1;
	*family = *(const uint16_t *)payload(attr[CTRL_ATTR_FAMILY_ID]);
	*version = *(const uint32_t *)payload(attr[CTRL_ATTR_VERSION]);
	p = (char *)payload(attr[CTRL_ATTR_MCAST_GROUPS]);
	end = p + payload_len(attr[CTRL_ATTR_MCAST_GROUPS]);
	while (end - p >= NLA_HDRLEN) {
		struct nlattr *each = (struct nlattr *)p, *one[CTRL_ATTR_MCAST_GRP_MAX + 1] = { 0 };

		parse(one, NULL, CTRL_ATTR_MCAST_GRP_MAX, NULL, (char *)payload(each),
		      payload_len(each));
		if (one[CTRL_ATTR_MCAST_GRP_NAME] && one[CTRL_ATTR_MCAST_GRP_ID] &&
		    !strcmp(payload(one[CTRL_ATTR_MCAST_GRP_NAME]), PTWATCH_GENL_GROUP)) {
			*group = *(const uint32_t *)payload(one[CTRL_ATTR_MCAST_GRP_ID]);
			return 0;
		}
		p += NLA_ALIGN(each->nla_len);
	}
	return -1;
}

static int join(int fd, uint32_t group)
{
	return setsockopt(fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof(group));
}

/* The next message within 10 s; false: none. */
static bool receive(int fd, struct message *m, int timeout)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	struct nlmsghdr *nl;
	ssize_t n;

	memset(m, 0, sizeof(*m));
	if (poll(&p, 1, timeout) != 1)
		return false;
	n = recv(fd, m->buffer, sizeof(m->buffer), 0);
	if (n < (ssize_t)(NLMSG_HDRLEN + GENL_HDRLEN))
		return false;
	nl = (struct nlmsghdr *)m->buffer;
	m->type = nl->nlmsg_type;
	m->pid = nl->nlmsg_pid;
	m->len = n;
	m->genl = *(struct genlmsghdr *)NLMSG_DATA(nl);
	parse(m->attr, m->count, PTWATCH_A_MAX, &m->unknown, (char *)NLMSG_DATA(nl) + GENL_HDRLEN,
	      nl->nlmsg_len - NLMSG_HDRLEN - GENL_HDRLEN);
	return true;
}

/* An integer of the size the header gives it; a wrong size is no value a test expects. */
static uint64_t number(const struct message *m, int attr, unsigned int size)
{
	uint64_t value = 0;

	if (!m->attr[attr] || payload_len(m->attr[attr]) != size)
		return 0xbadbadbadbadbadbULL;
	memcpy(&value, payload(m->attr[attr]), size);
	return value;
}

static const char *string(const struct message *m, int attr)
{
	const char *s = m->attr[attr] ? payload(m->attr[attr]) : NULL;
	unsigned int len = s ? payload_len(m->attr[attr]) : 0;

	return len && !s[len - 1] ? s : "";
}

static uint64_t element(const struct message *m, int attr, unsigned int i)
{
	uint64_t value = 0xbadbadbadbadbadbULL;

	if (m->attr[attr] && payload_len(m->attr[attr]) >= 8 * (i + 1))
		memcpy(&value, (const char *)payload(m->attr[attr]) + 8 * i, 8);
	return value;
}

static bool inside(uint64_t address, const char *function)
{
	uint64_t start = symbol(function);

	return address >= start && address < symbol_end(function);
}

static uint64_t monotonic_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

/* Ours, as the inode number of its directory. */
static uint64_t cgroup(void)
{
	char line[256], path[512];
	struct stat st;
	FILE *f = fopen("/proc/self/cgroup", "r");

	while (f && fgets(line, sizeof(line), f)) {
		if (strncmp(line, "0::", 3))
			continue;
		line[strcspn(line, "\n")] = '\0';
		snprintf(path, sizeof(path), "/sys/fs/cgroup%s", line + 3);
		fclose(f);
		return stat(path, &st) ? 0 : st.st_ino;
	}
	die("no cgroup v2");
}

static bool contains(const struct message *m, int attr, const char *function)
{
	unsigned int i;

	for (i = 0; m->attr[attr] && i < payload_len(m->attr[attr]) / 8; i++)
		if (inside(element(m, attr, i), function))
			return true;
	return false;
}

/* What every alarm of a poke by this process has. */
static void common_attributes(const struct message *m, unsigned int cpu, uint32_t id)
{
	char comm[16];
	FILE *f = fopen("/proc/self/comm", "r");

	if (!f || !fgets(comm, sizeof(comm), f))
		die("no comm");
	fclose(f);
	comm[strcspn(comm, "\n")] = '\0';
	is(m->pid, 0, "the kernel sent it");
	is(m->genl.cmd, PTWATCH_CMD_ALARM, "it is an ALARM");
	is(m->genl.version, PTWATCH_GENL_VERSION, "of our version");
	is(m->unknown, 0, "without attributes that the header does not know");
	is(number(m, PTWATCH_A_WATCH, 4), id, "WATCH");
	is(number(m, PTWATCH_A_CPU, 4), cpu, "CPU");
	is(number(m, PTWATCH_A_PID, 4), syscall(SYS_gettid), "PID");
	is(number(m, PTWATCH_A_TGID, 4), getpid(), "TGID");
	ok(!strcmp(string(m, PTWATCH_A_COMM), comm), "COMM is %s (%s)", comm,
	   string(m, PTWATCH_A_COMM));
	is(number(m, PTWATCH_A_CGROUP, 8), cgroup(), "CGROUP");
	is(number(m, PTWATCH_A_LOST, 8), dropped_alarms, "LOST");
	is(element(m, PTWATCH_A_STACK, 0), number(m, PTWATCH_A_IP, 8), "the first of STACK is IP");
	is(m->attr[PTWATCH_A_REGS] ? payload_len(m->attr[PTWATCH_A_REGS]) : 0,
	   8 * PTWATCH_REG_COUNT, "REGS is complete");
	is(element(m, PTWATCH_A_REGS, PTWATCH_REG_IP), number(m, PTWATCH_A_IP, 8),
	   "its ip is IP");
	ok(contains(m, PTWATCH_A_STACK, "pokee_write"), "STACK leads to pokee_write");
}

static void data_alarm(int fd, int nl, uint64_t *seq)
{
	struct ptwatch_watch arg = watch_arg(symbol("pokee_word"), 8, PTWATCH_ACCESS_W);
	uint64_t tsc[2], ns[2];
	struct message m;
	unsigned int i;
	uint32_t id;

	if (poke("store", 0, 1, 0x1111))
		die("poke");
	strcpy(arg.label, "pokee_word+0x0");
	arg.max_rate = 0;
	id = add_watch(fd, arg);
	ns[0] = monotonic_ns();
	tsc[0] = rdtsc();
	if (poke("store", 1, 3, 0xfedcba9876543210))
		die("poke");
	tsc[1] = rdtsc();
	ns[1] = monotonic_ns();
	for (i = 0; i < 3; i++) {
		uint64_t value = 0xfedcba9876543210 + i;

		if (!ok(receive(nl, &m, 10000), "alarm %u of 3 stores arrives", i + 1))
			continue;
		is(number(&m, PTWATCH_A_OLD, 8), i ? value - 1 : 0x1111, "OLD");
		is(number(&m, PTWATCH_A_NEW, 8), value, "NEW");
		if (*seq)
			is(number(&m, PTWATCH_A_SEQ, 8), *seq + 1, "SEQ is one more");
		*seq = number(&m, PTWATCH_A_SEQ, 8);
		if (i)
			continue;
		ok(*seq > 0, "SEQ begins at 1");
		common_attributes(&m, 1, id);
		ok(!strcmp(string(&m, PTWATCH_A_LABEL), "pokee_word+0x0"), "LABEL");
		is(number(&m, PTWATCH_A_ACCESS, 4), PTWATCH_ACCESS_W, "ACCESS");
		is(number(&m, PTWATCH_A_ADDRESS, 8), arg.address, "ADDRESS");
		is(number(&m, PTWATCH_A_LEN, 4), 8, "LEN");
		ok(inside(number(&m, PTWATCH_A_IP, 8), "pokee_store"), "IP is in pokee_store");
		ok(number(&m, PTWATCH_A_TSC, 8) >= tsc[0] && number(&m, PTWATCH_A_TSC, 8) <= tsc[1],
		   "TSC lies in the poke");
		ok(number(&m, PTWATCH_A_TIME, 8) >= ns[0] && number(&m, PTWATCH_A_TIME, 8) <= ns[1],
		   "TIME lies in the poke");
		ok(!m.attr[PTWATCH_A_TRACE_STATE] && !m.attr[PTWATCH_A_TRACE_SIZE] &&
			   !m.attr[PTWATCH_A_TRACE_OFFSET] && !m.attr[PTWATCH_A_TRACE_BANK],
		   "no trace attributes, as nothing froze");
	}
	for (i = 0; i <= PTWATCH_A_MAX; i++)
		if (m.count[i] > 1 && i != PTWATCH_A_PAD)
			ok(false, "attribute %u comes %u times", i, m.count[i]);
	ok(!receive(nl, &m, 200), "no fourth alarm");
	del_watch(fd, id);
}

static void part_alarm(int fd, int nl, uint64_t *seq)
{
	struct ptwatch_watch arg = watch_arg(symbol("pokee_word") + 2, 2, PTWATCH_ACCESS_RW);
	struct message m;
	uint32_t id;

	if (poke("store", 0, 1, 0x8877665544332211))
		die("poke");
	id = add_watch(fd, arg);
	/* Byte 3 of the word is the upper one of the two. */
	if (poke("byte", 0, 1, 0xab))
		die("poke");
	if (ok(receive(nl, &m, 10000), "an alarm of 2 bytes arrives")) {
		is(number(&m, PTWATCH_A_SEQ, 8), *seq + 1, "SEQ is one more");
		*seq = number(&m, PTWATCH_A_SEQ, 8);
		common_attributes(&m, 0, id);
		is(number(&m, PTWATCH_A_OLD, 8), 0x4433, "OLD, zero-extended");
		is(number(&m, PTWATCH_A_NEW, 8), 0xab33, "NEW, zero-extended");
		is(number(&m, PTWATCH_A_ACCESS, 4), PTWATCH_ACCESS_RW, "ACCESS");
		is(number(&m, PTWATCH_A_LEN, 4), 2, "LEN");
		ok(!m.attr[PTWATCH_A_LABEL], "an empty LABEL is absent");
		ok(inside(number(&m, PTWATCH_A_IP, 8), "pokee_byte"), "IP is in pokee_byte");
	}
	del_watch(fd, id);
}

static void exec_alarm(int fd, int nl, uint64_t *seq)
{
	uint64_t function = symbol("pokee_function");
	uint32_t id = add_watch(fd, watch_arg(function, 8, PTWATCH_ACCESS_X));
	struct message m;

	if (poke("exec", 1, 1, 0))
		die("poke");
	if (ok(receive(nl, &m, 10000), "an alarm of an execution watch arrives")) {
		is(number(&m, PTWATCH_A_SEQ, 8), *seq + 1, "SEQ is one more");
		*seq = number(&m, PTWATCH_A_SEQ, 8);
		common_attributes(&m, 1, id);
		is(number(&m, PTWATCH_A_ACCESS, 4), PTWATCH_ACCESS_X, "ACCESS");
		is(number(&m, PTWATCH_A_IP, 8), function, "IP is the function's first instruction");
		ok(inside(element(&m, PTWATCH_A_STACK, 1), "pokee_exec"), "called by pokee_exec");
		ok(!m.attr[PTWATCH_A_OLD] && !m.attr[PTWATCH_A_NEW], "without OLD and NEW");
	}
	del_watch(fd, id);
}

static void freeze_alarm(int fd, int nl, uint64_t *seq)
{
	struct ptwatch_watch arg = watch_arg(symbol("pokee_word"), 8, PTWATCH_ACCESS_W);
	const volatile struct ptwatch_control *page;
	struct ptwatch_control c;
	struct message m;
	uint32_t id;

	if (setup(fd, 2))
		die("SETUP fails");
	page = map_control(fd, 1);
	arg.actions |= PTWATCH_ACTION_FREEZE;
	id = add_watch(fd, arg);
	if (ioctl(fd, PTWATCH_IOC_TRACE_START) || poke("store", 1, 2, 5))
		die("START and poke");
	if (ok(receive(nl, &m, 10000), "the alarm that froze arrives")) {
		c = read_control(page);
		is(number(&m, PTWATCH_A_SEQ, 8), *seq + 1, "SEQ is one more");
		is(c.freeze_seq, *seq + 1, "which the control page names");
		*seq = number(&m, PTWATCH_A_SEQ, 8);
		common_attributes(&m, 1, id);
		is(number(&m, PTWATCH_A_TRACE_STATE, 4), PTWATCH_STATE_FROZEN, "TRACE_STATE");
		is(number(&m, PTWATCH_A_TRACE_BANK, 4), 0, "TRACE_BANK");
		is(number(&m, PTWATCH_A_TRACE_OFFSET, 8), c.head, "TRACE_OFFSET is head");
		is(number(&m, PTWATCH_A_TRACE_SIZE, 8), c.flags ? c.data_size : c.head,
		   "TRACE_SIZE is what there is");
		ok(number(&m, PTWATCH_A_TSC, 8) >= c.stop_tsc, "TSC is not before stop_tsc");
	}
	if (ok(receive(nl, &m, 10000), "the next one arrives")) {
		is(number(&m, PTWATCH_A_SEQ, 8), *seq + 1, "SEQ is one more");
		*seq = number(&m, PTWATCH_A_SEQ, 8);
		ok(!m.attr[PTWATCH_A_TRACE_STATE], "it froze nothing, and says nothing of a trace");
	}
	is(read_control(page).freeze_seq, *seq - 1, "freeze_seq stays the first's");
	del_watch(fd, id);
	munmap((void *)page, PAGE);
	ioctl(fd, PTWATCH_IOC_TRACE_RELEASE);
}

/* Without EVENT nothing is sent, but the alarm has its number. */
static void silent_alarm(int fd, int nl, uint64_t *seq)
{
	struct ptwatch_watch arg = watch_arg(symbol("pokee_word"), 8, PTWATCH_ACCESS_W);
	struct message m;
	uint32_t id;

	arg.actions = PTWATCH_ACTION_LOG;
	strcpy(arg.label, "logged by the device test");
	id = add_watch(fd, arg);
	if (poke("store", 0, 1, 0x1234))
		die("poke");
	is(settled(fd, id).alarms, 1, "a watch that only logs has its alarm");
	ok(!receive(nl, &m, 200), "and sends no message");
	del_watch(fd, id);
	++*seq;
}

/* ---- the backlog: alarms of persistent watches, for who comes later ---- */

static int ask_for_backlog(int nl, uint16_t family)
{
	struct {
		struct nlmsghdr nl;
		struct genlmsghdr genl;
	} ask = {
		.nl = { sizeof(ask), family, NLM_F_REQUEST | NLM_F_DUMP, 7, 0 },
		.genl = { PTWATCH_CMD_BACKLOG, PTWATCH_GENL_VERSION, 0 },
	};

	return send(nl, &ask, sizeof(ask), 0) == sizeof(ask) ? 0 : -1;
}

/*
 * The answer to ask_for_backlog(), to its end. Return: alarms in it, or a negative error. What is
 * in them goes to VALUE and SEQ, with their watch.
 */
static int read_backlog(int nl, uint32_t watch, uint64_t *value, uint64_t *seq, unsigned int max)
{
	static char buffer[65536];
	unsigned int n = 0;

	for (;;) {
		ssize_t len = recv(nl, buffer, sizeof(buffer), 0);
		struct nlmsghdr *nlh = (struct nlmsghdr *)buffer;

		if (len < 0)
			return -errno;
		for (; NLMSG_OK(nlh, len); nlh = NLMSG_NEXT(nlh, len)) {
			struct message m = { 0 };

			/* The end of a dump carries its error. */
			if (nlh->nlmsg_type == NLMSG_DONE || nlh->nlmsg_type == NLMSG_ERROR) {
				int error = *(int *)NLMSG_DATA(nlh);

				return error < 0 ? error : (int)n;
			}
			parse(m.attr, m.count, PTWATCH_A_MAX, &m.unknown,
			      (char *)NLMSG_DATA(nlh) + GENL_HDRLEN,
			      nlh->nlmsg_len - NLMSG_HDRLEN - GENL_HDRLEN);
			if (number(&m, PTWATCH_A_WATCH, 4) != watch)
				continue;
			if (n < max) {
				value[n] = number(&m, PTWATCH_A_NEW, 8);
				seq[n] = number(&m, PTWATCH_A_SEQ, 8);
			}
			n++;
		}
	}
}

static int backlog_as_nobody(void *arg)
{
	uint32_t group, version;
	uint16_t family;
	int fd, n;

	(void)arg;
	if (setgroups(0, NULL) || setresgid(NOBODY, NOBODY, NOBODY) ||
	    setresuid(NOBODY, NOBODY, NOBODY))
		return 200;
	fd = genl_socket();
	if (fd < 0 || resolve(fd, &family, &group, &version) || ask_for_backlog(fd, family))
		return 201;
	n = read_backlog(fd, 0, NULL, NULL, 0);
	return n < 0 ? -n : 0;
}

void test_backlog(void)
{
	struct ptwatch_watch arg = watch_arg(symbol("pokee_word"), 8, PTWATCH_ACCESS_W);
	uint64_t value[8] = { 0 }, seq[8] = { 0 };
	int fd = open_device(), nl;
	uint32_t group, version, id;
	uint16_t family;
	unsigned int i;

	arg.flags = PTWATCH_WATCH_PERSISTENT;
	id = add_watch(fd, arg);
	if (poke("store", 0, 5, 0x70))
		die("poke");
	is(settled(fd, id).alarms, 5, "a persistent watch has five alarms");
	close(fd);
	/* Only now is there anyone to listen. */
	nl = genl_socket();
	if (nl < 0 || resolve(nl, &family, &group, &version) || ask_for_backlog(nl, family))
		die("BACKLOG can't be asked for");
	is(read_backlog(nl, id, value, seq, 8), 5, "BACKLOG tells who comes later of all five");
	for (i = 0; i < 5; i++) {
		is(value[i], 0x70 + i, "the value of alarm %u", i + 1);
		ok(!i || seq[i] == seq[i - 1] + 1, "in their order");
	}
	close(nl);
	is(in_child(backlog_as_nobody, NULL), EPERM, "but not nobody: EPERM");
	fd = open_device();
	WORKS(ioctl(fd, PTWATCH_IOC_WATCH_REMOVE, (unsigned long)id), "WATCH_REMOVE");
	close(fd);
}

/* ---- listeners without rights; the exit status is an errno ---- */

static int join_as_nobody(void *arg)
{
	uint32_t group, version;
	uint16_t family;
	int fd;

	(void)arg;
	if (setgroups(0, NULL) || setresgid(NOBODY, NOBODY, NOBODY) ||
	    setresuid(NOBODY, NOBODY, NOBODY))
		return 200;
	fd = genl_socket();
	if (fd < 0 || resolve(fd, &family, &group, &version))
		return 201;
	return join(fd, group) ? errno : 0;
}

static int join_in_user_namespace(void *arg)
{
	uint32_t group, version;
	uint16_t family;
	int fd;

	(void)arg;
	if (unshare(CLONE_NEWUSER))
		return 200;
	fd = genl_socket();
	if (fd < 0 || resolve(fd, &family, &group, &version))
		return 201;
	return join(fd, group) ? errno : 0;
}

/* bind() with a mask of groups is the other way in. */
static int bind_as_nobody(void *arg)
{
	struct sockaddr_nl addr = { .nl_family = AF_NETLINK };
	uint32_t group, version;
	uint16_t family;
	int fd;

	(void)arg;
	if (setgroups(0, NULL) || setresgid(NOBODY, NOBODY, NOBODY) ||
	    setresuid(NOBODY, NOBODY, NOBODY))
		return 200;
	fd = genl_socket();
	if (fd < 0 || resolve(fd, &family, &group, &version) || group > 32)
		return 201;
	fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_GENERIC);
	addr.nl_groups = 1U << (group - 1);
	return bind(fd, (struct sockaddr *)&addr, sizeof(addr)) ? errno : 0;
}

void test_netlink(void)
{
	uint32_t group = 0, version = 0;
	uint16_t family = 0;
	uint64_t seq = 0;
	struct message m;
	int fd = open_device(), nl = genl_socket();

	if (nl < 0)
		die("no netlink socket");
	if (!WORKS(resolve(nl, &family, &group, &version), "family and group are there"))
		die("there is nobody to listen to");
	is(version, PTWATCH_GENL_VERSION, "the family's version");
	WORKS(join(nl, group), "root joins the group");
	data_alarm(fd, nl, &seq);
	part_alarm(fd, nl, &seq);
	exec_alarm(fd, nl, &seq);
	silent_alarm(fd, nl, &seq);
	freeze_alarm(fd, nl, &seq);
	while (receive(nl, &m, 0))
		;
	close(nl);

	is(in_child(join_as_nobody, NULL), EPERM, "nobody may not join the group: EPERM");
	is(in_child(join_in_user_namespace, NULL), EPERM,
	   "nor root of another user namespace: EPERM");
	is(in_child(bind_as_nobody, NULL), EPERM, "nor by bind: EPERM");
	close(fd);
}
