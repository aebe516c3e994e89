// SPDX-License-Identifier: GPL-2.0
/* Alarms as generic netlink messages: see <linux/ptwatch_netlink.h>. */
#include <linux/kallsyms.h>
#include <net/genetlink.h>

#include "ptwatch.h"

static const struct genl_multicast_group groups[] = {
	/* Alarms hold kernel addresses. */
	{ .name = PTWATCH_GENL_GROUP, .flags = GENL_MCAST_CAP_SYS_ADMIN },
};

static int dump_backlog(struct sk_buff *skb, struct netlink_callback *cb);

static const struct genl_small_ops ops[] = {
	/* Rights: by dump_backlog(), as GENL_ADMIN_PERM would be CAP_NET_ADMIN. */
	{ .cmd = PTWATCH_CMD_BACKLOG, .dumpit = dump_backlog },
};

static struct genl_family family __ro_after_init = {
	.name = PTWATCH_GENL_NAME,
	.version = PTWATCH_GENL_VERSION,
	.maxattr = PTWATCH_A_MAX,
	.module = THIS_MODULE,
	.mcgrps = groups,
	.n_mcgrps = ARRAY_SIZE(groups),
	.small_ops = ops,
	.n_small_ops = ARRAY_SIZE(ops),
	.resv_start_op = __PTWATCH_CMD_MAX,
};

static int put_u64(struct sk_buff *skb, int attr, u64 value)
{
	return nla_put_u64_64bit(skb, attr, value, PTWATCH_A_PAD);
}

static int put_stack(struct sk_buff *skb, const struct ptw_alarm *alarm)
{
	/* unsigned long is 64 bits on the only architecture with Intel PT. */
	BUILD_BUG_ON(sizeof(alarm->stack.addr[0]) != sizeof(u64));
	if (nla_put_64bit(skb, PTWATCH_A_STACK, alarm->stack.nr * sizeof(u64), alarm->stack.addr,
			  PTWATCH_A_PAD))
		return -EMSGSIZE;
	if (!alarm->nr_user_stack)
		return 0;
	return nla_put_64bit(skb, PTWATCH_A_USER_STACK, alarm->nr_user_stack * sizeof(u64),
			     alarm->user_stack, PTWATCH_A_PAD);
}

static int put_regs(struct sk_buff *skb, const struct pt_regs *regs)
{
	const u64 values[PTWATCH_REG_COUNT] = {
		[PTWATCH_REG_AX] = regs->ax,
		[PTWATCH_REG_BX] = regs->bx,
		[PTWATCH_REG_CX] = regs->cx,
		[PTWATCH_REG_DX] = regs->dx,
		[PTWATCH_REG_SI] = regs->si,
		[PTWATCH_REG_DI] = regs->di,
		[PTWATCH_REG_BP] = regs->bp,
		[PTWATCH_REG_SP] = regs->sp,
		[PTWATCH_REG_R8] = regs->r8,
		[PTWATCH_REG_R9] = regs->r9,
		[PTWATCH_REG_R10] = regs->r10,
		[PTWATCH_REG_R11] = regs->r11,
		[PTWATCH_REG_R12] = regs->r12,
		[PTWATCH_REG_R13] = regs->r13,
		[PTWATCH_REG_R14] = regs->r14,
		[PTWATCH_REG_R15] = regs->r15,
		[PTWATCH_REG_IP] = regs->ip,
		[PTWATCH_REG_FLAGS] = regs->flags,
	};

	return nla_put_64bit(skb, PTWATCH_A_REGS, sizeof(values), values, PTWATCH_A_PAD);
}

/* Where the watch begins, for this CPU. */
static u64 watched_address(const struct ptw_alarm *alarm)
{
	return alarm->address - 8 * alarm->slot;
}

static int fill(struct sk_buff *skb, struct ptw_alarm *alarm)
{
	const struct ptwatch_watch *watch = &alarm->watch->arg;
	char symbol[KSYM_SYMBOL_LEN];

	if (put_u64(skb, PTWATCH_A_SEQ, alarm->seq) ||
	    nla_put_u32(skb, PTWATCH_A_WATCH, watch->id) ||
	    put_u64(skb, PTWATCH_A_TIME, alarm->time) ||
	    put_u64(skb, PTWATCH_A_TSC, alarm->tsc) ||
	    nla_put_u32(skb, PTWATCH_A_CPU, alarm->cpu) ||
	    nla_put_u32(skb, PTWATCH_A_PID, alarm->pid) ||
	    nla_put_u32(skb, PTWATCH_A_TGID, alarm->tgid) ||
	    nla_put_string(skb, PTWATCH_A_COMM, alarm->comm) ||
	    put_u64(skb, PTWATCH_A_CGROUP, alarm->cgroup) ||
	    nla_put_u32(skb, PTWATCH_A_ACCESS, watch->access) ||
	    put_u64(skb, PTWATCH_A_ADDRESS, watched_address(alarm)) ||
	    nla_put_u32(skb, PTWATCH_A_LEN, watch->len) ||
	    put_u64(skb, PTWATCH_A_IP, alarm->regs.ip) ||
	    put_u64(skb, PTWATCH_A_LOST, alarm->lost) ||
	    nla_put_u32(skb, PTWATCH_A_ACTIONS, watch->actions) ||
	    put_stack(skb, alarm) || put_regs(skb, &alarm->regs))
		return -EMSGSIZE;
	if (watch->len > 8 && put_u64(skb, PTWATCH_A_HIT_ADDRESS, alarm->address))
		return -EMSGSIZE;
	snprintf(symbol, sizeof(symbol), "%pS", (void *)alarm->regs.ip);
	if (!user_mode(&alarm->regs) && nla_put_string(skb, PTWATCH_A_SYMBOL, symbol))
		return -EMSGSIZE;
	if (watch->label[0] && nla_put_string(skb, PTWATCH_A_LABEL, watch->label))
		return -EMSGSIZE;
	if (alarm->have_values && (put_u64(skb, PTWATCH_A_OLD, alarm->old_value) ||
				   put_u64(skb, PTWATCH_A_NEW, alarm->new_value)))
		return -EMSGSIZE;
	if (alarm->frozen &&
	    (nla_put_u32(skb, PTWATCH_A_TRACE_STATE, PTWATCH_STATE_FROZEN) ||
	     nla_put_u32(skb, PTWATCH_A_FREEZE, alarm->freeze) ||
	     nla_put_u32(skb, PTWATCH_A_TRACE_BANK, alarm->trace_bank) ||
	     put_u64(skb, PTWATCH_A_TRACE_OFFSET, alarm->trace_head) ||
	     put_u64(skb, PTWATCH_A_TRACE_SIZE, alarm->trace_size)))
		return -EMSGSIZE;
	return 0;
}

struct ptw_message *ptw_netlink_send(struct ptw_alarm *alarm)
{
	struct ptw_message *message;
	struct sk_buff *skb;
	void *header;

	skb = genlmsg_new(NLMSG_GOODSIZE, GFP_KERNEL);
	if (!skb)
		return NULL;
	header = genlmsg_put(skb, 0, 0, &family, 0, PTWATCH_CMD_ALARM);
	if (WARN_ON_ONCE(!header || fill(skb, alarm))) {
		nlmsg_free(skb);
		return NULL;
	}
	genlmsg_end(skb, header);
	message = ptw_message_alloc(nlmsg_hdr(skb), alarm->seq);
	/* Nobody listening (ESRCH) is no error, and who is too slow is told by his socket. */
	genlmsg_multicast(&family, skb, 0, 0, GFP_KERNEL);
	return message;
}

/* PTWATCH_CMD_BACKLOG: one message for each alarm that was kept; args[0] is the next number. */
static int dump_backlog(struct sk_buff *skb, struct netlink_callback *cb)
{
	struct ptw_message *message;

	if (!netlink_capable(cb->skb, CAP_SYS_ADMIN))
		return -EPERM;
	while ((message = ptw_readers_kept(cb->args[0]))) {
		u32 len = message->len - NLMSG_HDRLEN;
		struct nlmsghdr *nlh = nlmsg_put(skb, NETLINK_CB(cb->skb).portid,
						 cb->nlh->nlmsg_seq, family.id, len, NLM_F_MULTI);

		if (!nlh) {
			ptw_message_put(message);
			break;
		}
		memcpy(nlmsg_data(nlh), message->data + NLMSG_HDRLEN, len);
		cb->args[0] = message->seq + 1;
		ptw_message_put(message);
	}
	return skb->len;
}

int ptw_netlink_init(void)
{
	return genl_register_family(&family);
}

void ptw_netlink_exit(void)
{
	genl_unregister_family(&family);
}
