// SPDX-License-Identifier: GPL-2.0
/*
 * Alarms that wait to be read: in each session those for its read(2), and in one place of all the
 * newest ones of persistent watches, for whoever asks later.
 */
#include <linux/list.h>
#include <linux/netlink.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "ptwatch.h"

static struct ptw_queue kept;		/* under ptw_config_lock, but for dumps */
static LIST_HEAD(listeners);		/* sessions; under ptw_config_lock */

static void message_free(struct kref *kref)
{
	kfree(container_of(kref, struct ptw_message, kref));
}

void ptw_message_put(struct ptw_message *message)
{
	kref_put(&message->kref, message_free);
}

struct ptw_message *ptw_message_alloc(const struct nlmsghdr *nlh, u64 seq)
{
	struct ptw_message *message =
		kmalloc(struct_size(message, data, nlh->nlmsg_len), GFP_KERNEL);
	struct nlmsghdr *copy;

	if (!message)
		return NULL;
	kref_init(&message->kref);
	message->seq = seq;
	message->len = nlh->nlmsg_len;
	memcpy(message->data, nlh, nlh->nlmsg_len);
	copy = (struct nlmsghdr *)message->data;
	copy->nlmsg_type = 0;
	copy->nlmsg_seq = 0;
	return message;
}

/* ---- queues ---- */

void ptw_queue_init(struct ptw_queue *queue)
{
	spin_lock_init(&queue->lock);
}

bool ptw_queue_empty(struct ptw_queue *queue)
{
	return READ_ONCE(queue->head) == READ_ONCE(queue->tail);
}

static void push(struct ptw_queue *queue, struct ptw_message *message)
{
	struct ptw_message *oldest = NULL;

	kref_get(&message->kref);
	spin_lock(&queue->lock);
	if (queue->head - queue->tail == PTWATCH_READ_MAX) {
		oldest = queue->message[queue->tail++ % PTWATCH_READ_MAX];
		queue->unread++;
	}
	queue->message[queue->head % PTWATCH_READ_MAX] = message;
	WRITE_ONCE(queue->head, queue->head + 1);
	spin_unlock(&queue->lock);
	if (oldest)
		ptw_message_put(oldest);
}

void ptw_queue_clear(struct ptw_queue *queue)
{
	while (queue->tail != queue->head)
		ptw_message_put(queue->message[queue->tail++ % PTWATCH_READ_MAX]);
}

/* The oldest, with a reference; NULL: none. */
static struct ptw_message *peek(struct ptw_queue *queue, u64 *unread)
{
	struct ptw_message *message = NULL;

	spin_lock(&queue->lock);
	if (queue->head != queue->tail) {
		message = queue->message[queue->tail % PTWATCH_READ_MAX];
		kref_get(&message->kref);
		*unread = queue->unread;
	}
	spin_unlock(&queue->lock);
	return message;
}

/* Unless another reader or a newer alarm has removed it meanwhile. */
static bool remove(struct ptw_queue *queue, struct ptw_message *message)
{
	bool removed = false;

	spin_lock(&queue->lock);
	if (queue->head != queue->tail &&
	    queue->message[queue->tail % PTWATCH_READ_MAX] == message) {
		WRITE_ONCE(queue->tail, queue->tail + 1);
		removed = true;
	}
	spin_unlock(&queue->lock);
	if (removed)
		ptw_message_put(message);
	return removed;
}

static int copy_message(struct ptw_message *message, u64 unread, char __user *to, size_t size)
{
	struct {
		struct nlattr header;
		u64 value;
	} __packed attr = { { NLA_HDRLEN + sizeof(u64), PTWATCH_A_UNREAD }, unread };
	struct nlmsghdr nlh = *(struct nlmsghdr *)message->data;
	u32 padded = NLMSG_ALIGN(message->len);

	if (size < padded + sizeof(attr))
		return -EMSGSIZE;
	nlh.nlmsg_len = padded + sizeof(attr);
	if (copy_to_user(to, &nlh, sizeof(nlh)) ||
	    copy_to_user(to + sizeof(nlh), message->data + sizeof(nlh),
			 message->len - sizeof(nlh)) ||
	    clear_user(to + message->len, padded - message->len) ||
	    copy_to_user(to + padded, &attr, sizeof(attr)))
		return -EFAULT;
	return nlh.nlmsg_len;
}

ssize_t ptw_queue_read(struct ptw_queue *queue, char __user *to, size_t size)
{
	struct ptw_message *message;
	u64 unread;
	int n;

	do {
		message = peek(queue, &unread);
		if (!message)
			return 0;
		n = copy_message(message, unread, to, size);
		/* One that someone else got meanwhile is not ours to give. */
		if (n > 0 && !remove(queue, message))
			n = 0;
		ptw_message_put(message);
	} while (!n);
	return n;
}

/* ---- who gets what; under ptw_config_lock ---- */

void ptw_readers_deliver(struct ptw_watch *watch, struct ptw_message *message)
{
	struct ptw_session *session;

	lockdep_assert_held(&ptw_config_lock);
	if (watch->session && list_empty(&watch->session->listener))
		push(&watch->session->queue, message);
	list_for_each_entry(session, &listeners, listener) {
		push(&session->queue, message);
		wake_up_interruptible(&session->wait);
	}
	if (watch->arg.flags & PTWATCH_WATCH_PERSISTENT)
		push(&kept, message);
	ptw_message_put(message);
}

static bool holds(const struct ptw_queue *queue, const struct ptw_message *message)
{
	unsigned int i;

	for (i = queue->tail; i != queue->head; i++)
		if (queue->message[i % PTWATCH_READ_MAX] == message)
			return true;
	return false;
}

void ptw_readers_listen(struct ptw_session *session)
{
	unsigned int i;

	lockdep_assert_held(&ptw_config_lock);
	if (!list_empty(&session->listener))
		return;
	for (i = kept.tail; i != kept.head; i++) {
		struct ptw_message *message = kept.message[i % PTWATCH_READ_MAX];

		if (!holds(&session->queue, message))
			push(&session->queue, message);
	}
	list_add_tail(&session->listener, &listeners);
	wake_up_interruptible(&session->wait);
}

void ptw_readers_leave(struct ptw_session *session)
{
	lockdep_assert_held(&ptw_config_lock);
	list_del_init(&session->listener);
	ptw_queue_clear(&session->queue);
}

struct ptw_message *ptw_readers_kept(u64 seq)
{
	struct ptw_message *found = NULL;
	unsigned int i;

	spin_lock(&kept.lock);
	for (i = kept.tail; i != kept.head && !found; i++)
		if (kept.message[i % PTWATCH_READ_MAX]->seq >= seq)
			found = kept.message[i % PTWATCH_READ_MAX];
	if (found)
		kref_get(&found->kref);
	spin_unlock(&kept.lock);
	return found;
}

void ptw_readers_init(void)
{
	ptw_queue_init(&kept);
}

void ptw_readers_exit(void)
{
	ptw_queue_clear(&kept);
}
