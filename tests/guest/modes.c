// SPDX-License-Identifier: BSD-2-Clause
/* What a trace can be besides a ring of everything: streams, banks, ranges, switch records. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest.h"

/* A counter of the emulator, as MSR 0x4fff0000 + n of each CPU. */
#define EMU_BYTES	0x14

static uint64_t emulator_count(unsigned int cpu, uint32_t n)
{
	uint64_t value;
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/dev/cpu/%u/msr", cpu);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || pread(fd, &value, 8, 0x4fff0000 + n) != 8)
		die("can't read the emulator's counter %#x", n);
	close(fd);
	return value;
}

static uint8_t cpu_sets[] = { 0, 1, 2, 3 };

static struct ptwatch_trace mode_arg(uint32_t mode, uint64_t size, unsigned int cpus)
{
	struct ptwatch_trace arg = trace_arg(KERNEL_TRACE, size);

	arg.mode = mode;
	arg.banks = mode == PTWATCH_MODE_BANKS ? 3 : 0;
	arg.cpus = (uintptr_t)&cpu_sets[cpus];
	arg.cpus_size = 1;
	return arg;
}

static int set_up(int fd, struct ptwatch_trace arg)
{
	return ioctl(fd, PTWATCH_IOC_TRACE_SETUP, &arg);
}

#define REFUSED(expected, name, change) \
	do { \
		struct ptwatch_trace arg = good; \
		change; \
		FAILS(set_up(fd, arg), expected, "SETUP with " name); \
	} while (0)

/* ---- streams ---- */

#define STREAM_SIZE	(64 * PAGE)	/* eight regions of eight pages */

static uint64_t live(const volatile __u64 *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static int advance(int fd, unsigned int cpu, uint64_t tail)
{
	struct ptwatch_advance arg = { .size = sizeof(arg), .cpu = cpu, .tail = tail };

	return ioctl(fd, PTWATCH_IOC_TRACE_ADVANCE, &arg);
}

static void go(int fd, unsigned long request)
{
	if (ioctl(fd, request))
		die("ioctl %#lx fails", request);
}

static void stream_refusals(int fd)
{
	struct ptwatch_trace good = mode_arg(PTWATCH_MODE_STREAM, STREAM_SIZE, 1);

	REFUSED(EINVAL, "a mode that does not exist", arg.mode = 3);
	REFUSED(EINVAL, "a stream of three pages", arg.buffer_size = 3 * PAGE);
	REFUSED(EINVAL, "a stream with banks", arg.banks = 2);
	REFUSED(EINVAL, "regions of half a page", arg.region_size = PAGE / 2);
	REFUSED(EINVAL, "regions of three pages", arg.region_size = 3 * PAGE);
	REFUSED(EINVAL, "a reason", arg.reason = 1);
	REFUSED(EINVAL, "a holder", arg.holder_comm[15] = 1);
	FAILS(advance(fd, 0, 0), EINVAL, "ADVANCE without a trace");
	WORKS(setup(fd, 1), "SETUP of a ring");
	FAILS(advance(fd, 0, 0), EINVAL, "ADVANCE of a ring");
	go(fd, PTWATCH_IOC_TRACE_RELEASE);
}

/*
 * A reader that keeps up: several times round the buffer, and nothing is lost. Return: it did. A busy machine may not
 * let it, but then the buffer was full.
 */
static bool stream_keeps_up(int fd, const volatile struct ptwatch_control *page)
{
	uint64_t end = now_ms() + 60000, head = 0;

	while (head < 3 * STREAM_SIZE && now_ms() < end) {
		uint64_t tail = head;

		work_ms(2);
		go(fd, PTWATCH_IOC_TRACE_FLUSH);
		head = live(&page->head);
		if (live(&page->lost)) {
			ok(head - tail > STREAM_SIZE / 2, "bytes are lost only where the buffer was full");
			return false;
		}
		if (advance(fd, 0, head))
			die("ADVANCE to head fails");
	}
	ok(head >= 3 * STREAM_SIZE, "a stream goes on round the buffer");
	is(live(&page->nr_losses), 0, "a reader that keeps up loses nothing");
	is(page->tail, head, "control.tail is what was advanced to");
	FAILS(advance(fd, 0, head - 1), EINVAL, "ADVANCE backwards");
	FAILS(advance(fd, 0, head + STREAM_SIZE), EINVAL, "ADVANCE beyond head");
	FAILS(advance(fd, 1, head), EINVAL, "ADVANCE of a CPU that is not traced");
	return true;
}

static bool psb_at(const uint8_t *data, uint64_t position)
{
	uint8_t bytes[16];
	unsigned int i;

	for (i = 0; i < sizeof(bytes); i++)
		bytes[i] = data[(position + i) % STREAM_SIZE];
	return starts_with_psb(bytes);
}

/* Nobody reads: what has no room is counted, and what was written before stays. */
static void stream_loses(int fd, const volatile struct ptwatch_control *page, const uint8_t *data)
{
	static uint8_t copy[STREAM_SIZE];
	uint64_t tail = page->tail, end = now_ms() + 60000, position, i, lost;
	struct ptwatch_loss loss;
	bool same = true;

	while (live(&page->lost) < 100000 && now_ms() < end)
		work_ms(10);
	ok(live(&page->lost) >= 100000, "without a reader bytes are lost, and counted meanwhile");
	ok(poll_device(fd, 0) & POLLIN, "poll tells that there is something to read");
	position = live(&page->head);
	ok(position - tail <= STREAM_SIZE && position - tail > STREAM_SIZE / 2,
	   "the buffer is full (%llu of %lu)", (unsigned long long)(position - tail), STREAM_SIZE);
	memcpy(copy, data, sizeof(copy));
	work_ms(10);
	is(live(&page->head), position, "head stays where it is");
	for (i = tail; i < position; i++)
		same &= copy[i % STREAM_SIZE] == data[i % STREAM_SIZE];
	ok(same, "and no unread byte changes");
	is(live(&page->nr_losses), 0, "the gap has not ended");

	if (advance(fd, 0, position))
		die("ADVANCE fails");
	is(live(&page->nr_losses), 1, "it ends with ADVANCE");
	lost = live(&page->lost);
	loss = *(const struct ptwatch_loss *)&page->losses[0];
	is(loss.position, position, "the gap is where head was");
	is(loss.bytes, lost, "its bytes are those lost");
	ok(loss.start_tsc < loss.end_tsc && loss.end_tsc <= rdtsc(), "it has a time");
	go(fd, PTWATCH_IOC_TRACE_FLUSH);
	ok(live(&page->head) > position, "the stream goes on");
	is(live(&page->lost), lost, "without loss");
	ok(psb_at(data, position), "behind the gap is a PSB");
}

static void stream_accounts(void)
{
	const volatile struct ptwatch_control *page;
	uint64_t written, sum = 0, i;
	struct ptwatch_control c;
	int fd = open_device();
	const uint8_t *data;

	stream_refusals(fd);
	for (i = 0; i < 20; i++) {
		if (set_up(fd, mode_arg(PTWATCH_MODE_STREAM, STREAM_SIZE, 1)))
			die("SETUP of a stream fails");
		page = map_control(fd, 0);
		data = map_data(fd, 0, STREAM_SIZE);
		written = emulator_count(0, EMU_BYTES);
		is(poll_device(fd, 0), 0, "nothing to read before START");
		go(fd, PTWATCH_IOC_TRACE_START);
		if (stream_keeps_up(fd, page))
			break;
		munmap((void *)page, PAGE);
		munmap((void *)data, STREAM_SIZE);
		go(fd, PTWATCH_IOC_TRACE_RELEASE);
	}
	ok(i < 20, "a reader can keep up");
	stream_loses(fd, page, data);

	/* A STOP ends a gap, too. */
	while (live(&page->lost) == page->losses[0].bytes)
		work_ms(10);
	go(fd, PTWATCH_IOC_TRACE_STOP);
	written = emulator_count(0, EMU_BYTES) - written;
	c = read_control(page);
	is(c.state, PTWATCH_STATE_STOPPED, "the state is STOPPED");
	is(c.flags, 0, "no flag: the CPU never overran the buffer");
	is(c.nr_losses, 2, "there were two gaps");
	for (i = 0; i < c.nr_losses; i++)
		sum += c.losses[i].bytes;
	is(sum, c.lost, "whose bytes are all that was lost");
	is(c.head + c.lost, written, "bytes to read and bytes lost are what the CPU wrote");

	/* Start and stop, again and again. */
	written = c.head + c.lost - emulator_count(0, EMU_BYTES);
	for (i = 0; i < 20; i++) {
		if (advance(fd, 0, live(&page->head)))
			die("ADVANCE fails");
		go(fd, PTWATCH_IOC_TRACE_START);
		work_ms(1);
		go(fd, PTWATCH_IOC_TRACE_STOP);
	}
	c = read_control(page);
	is(c.head + c.lost - emulator_count(0, EMU_BYTES), written,
	   "also after twenty times START and STOP");
	munmap((void *)page, PAGE);
	munmap((void *)data, STREAM_SIZE);
	close(fd);
	ok(perf_pt_trace(0) > 0, "perf traces after a stream");
}

/* A CPU that goes and comes back in the middle. */
static void stream_hotplug(void)
{
	const volatile struct ptwatch_control *page;
	uint64_t written = emulator_count(1, EMU_BYTES);
	struct ptwatch_control c;
	int fd = open_device();

	if (set_up(fd, mode_arg(PTWATCH_MODE_STREAM, 1024 * PAGE, 3)))
		die("SETUP of a stream fails");
	page = map_control(fd, 1);
	go(fd, PTWATCH_IOC_TRACE_START);
	pin(1);
	work_ms(5);
	pin(0);
	if (!online(1, false))
		die("CPU 1 does not go");
	is(read_control(page).state, PTWATCH_STATE_OFFLINE, "a stream's CPU is OFFLINE");
	ok(live(&page->head) > 0, "and what it wrote can be read");
	WORKS(advance(fd, 1, live(&page->head)), "and given back");
	if (!online(1, true))
		die("CPU 1 does not come back");
	is(read_control(page).state, PTWATCH_STATE_RUNNING, "it goes on when it is back");
	go(fd, PTWATCH_IOC_TRACE_STOP);
	c = read_control(page);
	is(c.head + c.lost, emulator_count(1, EMU_BYTES) - written,
	   "bytes to read and bytes lost are what the CPU wrote");
	munmap((void *)page, PAGE);
	close(fd);
}

/* A stream of this process and its children, with switch records: all that there is to let go of. */
static int die_amid_stream(void *unused)
{
	struct ptwatch_trace arg = mode_arg(PTWATCH_MODE_STREAM, STREAM_SIZE, 3);
	int fd = open_device();

	(void)unused;
	arg.target_kind = PTWATCH_TARGET_PROCESS;
	arg.target = getpid();
	arg.flags = PTWATCH_TRACE_FOLLOW_FORK;
	arg.switch_records = 128;
	if (set_up(fd, arg) || ioctl(fd, PTWATCH_IOC_TRACE_START))
		return 1;
	work_ms(20);
	kill(getpid(), SIGKILL);
	return 0;
}

static void stream_reader_dies(void)
{
	int fd;

	is(in_child(die_amid_stream, NULL), (uint64_t)-1, "the reader of a stream is killed");
	fd = open_device();
	WORKS(set_up(fd, mode_arg(PTWATCH_MODE_STREAM, STREAM_SIZE, 3)), "and its CPUs are free");
	close(fd);
	ok(perf_pt_trace(0) > 0 && perf_pt_trace(1) > 0, "also for perf");
}

void test_stream(void)
{
	stream_accounts();
	stream_hotplug();
	stream_reader_dies();
}

/* ---- banks ---- */

#define BANK_SIZE	(256 * PAGE)

static const uint8_t *map_bank(int fd, unsigned int cpu, unsigned int bank)
{
	void *map = mmap(NULL, BANK_SIZE, PROT_READ, MAP_SHARED, fd, PTWATCH_MMAP_BANK(cpu, bank));

	if (map == MAP_FAILED)
		die("can't map bank %u", bank);
	return map;
}

static int free_bank(int fd, unsigned int bank)
{
	struct ptwatch_bank_free arg = { .size = sizeof(arg), .cpu = 0, .bank = bank };

	return ioctl(fd, PTWATCH_IOC_BANK_FREE, &arg);
}

static void bank_refusals(int fd)
{
	struct ptwatch_trace good = mode_arg(PTWATCH_MODE_BANKS, BANK_SIZE, 1);
	struct ptwatch_info info = { .size = sizeof(info) };

	if (ioctl(fd, PTWATCH_IOC_INFO, &info))
		die("INFO");
	REFUSED(EINVAL, "one bank", arg.banks = 1);
	REFUSED(EINVAL, "17 banks", arg.banks = 17);
	REFUSED(EINVAL, "banks that are too large together", arg.buffer_size = info.max_buffer_size);
	good.mode = PTWATCH_MODE_RING;
	REFUSED(EINVAL, "banks of a ring", );
}

static void check_states(const struct ptwatch_control *c, uint32_t state, const uint32_t *banks)
{
	unsigned int i;

	is(c->state, state, "state of the CPU");
	for (i = 0; i < 3; i++)
		is(c->banks[i].state, banks[i], "state of bank %u", i);
}

static void freeze_into_banks(int fd, const volatile struct ptwatch_control *page,
			      const uint8_t *const *data)
{
	static const uint32_t states[][3] = {
		{ PTWATCH_BANK_ACTIVE, PTWATCH_BANK_FREE, PTWATCH_BANK_FREE },
		{ PTWATCH_BANK_FROZEN, PTWATCH_BANK_ACTIVE, PTWATCH_BANK_FREE },
		{ PTWATCH_BANK_FROZEN, PTWATCH_BANK_FROZEN, PTWATCH_BANK_ACTIVE },
		{ PTWATCH_BANK_FROZEN, PTWATCH_BANK_FROZEN, PTWATCH_BANK_FROZEN },
	};
	struct ptwatch_watch watch = watch_arg(symbol("pokee_word"), 8, PTWATCH_ACCESS_W);
	static uint8_t copy[BANK_SIZE];
	struct ptwatch_control c;
	unsigned int i;
	uint32_t id;

	watch.actions |= PTWATCH_ACTION_FREEZE;
	id = add_watch(fd, watch);
	c = read_control(page);
	check_states(&c, PTWATCH_STATE_RUNNING, states[0]);
	for (i = 0; i < 3; i++) {
		if (poke("store", 0, 1, i))
			die("poke");
		is(settled(fd, id).alarms, i + 1, "a hit is an alarm");
		c = read_control(page);
		check_states(&c, i < 2 ? PTWATCH_STATE_RUNNING : PTWATCH_STATE_FROZEN,
			     states[i + 1]);
		is(c.bank, i < 2 ? i + 1 : 2, "the bank that is written");
		ok(c.banks[i].freeze_seq > (i ? c.banks[i - 1].freeze_seq : 0),
		   "the frozen bank names its alarm");
		/* How much that is depends on how fast the machine is. */
		if (c.banks[i].flags & PTWATCH_CONTROL_WRAPPED)
			ok(contains_psb(data[i], BANK_SIZE), "it has a trace, all round");
		else
			ok(c.banks[i].head > 16 && starts_with_psb(data[i]), "it has a trace");
		ok(c.banks[i].stop_tsc >= c.banks[i].start_tsc &&
		   c.banks[i].start_tsc >= (i ? c.banks[i - 1].stop_tsc : 0), "and a time");
		ok(poll_device(fd, 0) & POLLIN, "poll tells");
		memcpy(copy, data[i], BANK_SIZE);
		work_ms(10);
		ok(!memcmp(copy, data[i], BANK_SIZE), "it stays as it is while tracing goes on");
	}
	del_watch(fd, id);
}

void test_banks(void)
{
	const volatile struct ptwatch_control *page;
	const uint8_t *data[3];
	struct ptwatch_control c;
	int fd = open_device();
	unsigned int i;

	bank_refusals(fd);
	if (set_up(fd, mode_arg(PTWATCH_MODE_BANKS, BANK_SIZE, 1)))
		die("SETUP of banks fails");
	page = map_control(fd, 0);
	for (i = 0; i < 3; i++)
		data[i] = map_bank(fd, 0, i);
	FAILS((long)mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, PTWATCH_MMAP_BANK(0, 3)), EINVAL,
	      "mapping a bank that is not there");
	go(fd, PTWATCH_IOC_TRACE_START);
	FAILS(free_bank(fd, 0), EINVAL, "BANK_FREE of the active bank");
	FAILS(free_bank(fd, 1), EINVAL, "BANK_FREE of a free bank");
	FAILS(free_bank(fd, 3), EINVAL, "BANK_FREE of a bank that is not there");
	freeze_into_banks(fd, page, data);

	go(fd, PTWATCH_IOC_TRACE_THAW);
	FAILS(ioctl(fd, PTWATCH_IOC_TRACE_START), ENOBUFS, "START without a free bank");
	WORKS(free_bank(fd, 1), "BANK_FREE");
	FAILS(free_bank(fd, 1), EINVAL, "BANK_FREE again");
	WORKS(ioctl(fd, PTWATCH_IOC_TRACE_START), "START");
	c = read_control(page);
	is(c.bank, 1, "uses the free bank");
	is(c.banks[1].state, PTWATCH_BANK_ACTIVE, "which is active then");
	WORKS(free_bank(fd, 0), "BANK_FREE of another one");
	WORKS(ioctl(fd, PTWATCH_IOC_TRACE_FREEZE), "FREEZE");
	c = read_control(page);
	is(c.state, PTWATCH_STATE_RUNNING, "goes on");
	is(c.bank, 0, "in the next free bank");
	is(c.banks[1].state, PTWATCH_BANK_FROZEN, "leaves a snapshot");
	is(c.banks[1].freeze_seq, 0, "which no alarm made");
	ok(c.banks[1].head > 16 && starts_with_psb(data[1]), "and which has a trace");
	go(fd, PTWATCH_IOC_TRACE_STOP);
	munmap((void *)page, PAGE);
	for (i = 0; i < 3; i++)
		munmap((void *)data[i], BANK_SIZE);
	close(fd);
}

/* ---- address ranges ---- */

/* Bytes of a trace of some calls of pokee_function() (by CPU 0) with a range. */
static struct ptwatch_control trace_with(struct ptwatch_range range, const char *kind)
{
	struct ptwatch_trace arg = mode_arg(PTWATCH_MODE_RING, 1024 * PAGE, 1);
	const volatile struct ptwatch_control *page;
	struct ptwatch_control c;
	int fd = open_device();

	arg.rtit_ctl = PTWATCH_RTIT_CTL_OS | PTWATCH_RTIT_CTL_BRANCHEN;
	arg.nr_ranges = 1;
	arg.ranges[0] = range;
	if (set_up(fd, arg))
		die("SETUP with a range");
	page = map_control(fd, 0);
	go(fd, PTWATCH_IOC_TRACE_START);
	if (poke(kind, 0, 100, 0))
		die("poke");
	go(fd, PTWATCH_IOC_TRACE_STOP);
	c = read_control(page);
	munmap((void *)page, PAGE);
	close(fd);
	return c;
}

void test_ranges(void)
{
	struct ptwatch_trace good = mode_arg(PTWATCH_MODE_RING, 16 * PAGE, 1);
	uint64_t start = symbol("pokee_function");
	struct ptwatch_range range = { .start = start, .end = start,
				       .kind = PTWATCH_RANGE_FILTER };
	struct ptwatch_control with, without;
	int fd = open_device();

	good.nr_ranges = 1;
	good.ranges[0] = range;
	REFUSED(EINVAL, "a range of no kind", arg.ranges[0].kind = 0);
	REFUSED(EINVAL, "a range of a kind that does not exist", arg.ranges[0].kind = 3);
	REFUSED(EINVAL, "a range that ends before it starts", arg.ranges[0].end--);
	REFUSED(EINVAL, "a range that is not canonical", arg.ranges[0].start = 1ULL << 47);
	REFUSED(EINVAL, "a range that is not counted", arg.nr_ranges = 0);
	REFUSED(EINVAL, "five ranges", arg.nr_ranges = 5);
	good.ranges[1] = good.ranges[2] = range;
	REFUSED(EOPNOTSUPP, "three ranges, of which the CPU has two", arg.nr_ranges = 3);
	good.nr_ranges = 3;
	errno = 0;
	if (ioctl(fd, PTWATCH_IOC_TRACE_SETUP, &good))
		is(good.reason, PTWATCH_REASON_RANGES, "and the reason is told");
	close(fd);

	with = trace_with(range, "exec");
	without = trace_with(range, "store");
	ok(with.head > without.head + 100, "a function that runs is traced (%llu bytes)",
	   (unsigned long long)with.head);
	ok(without.head < 200, "one that does not leaves next to nothing (%llu bytes)",
	   (unsigned long long)without.head);
	is(with.flags, 0, "and nothing stops it");

	range.kind = PTWATCH_RANGE_STOP;
	with = trace_with(range, "exec");
	without = trace_with(range, "store");
	is(with.flags, PTWATCH_CONTROL_STOPPED, "a STOP range that is reached is told");
	is(with.rtit_status & 0x20, 0x20, "by the CPU, too");
	is(without.flags, 0, "one that is not reached is not");
}

/* ---- refusals with a reason ---- */

void test_reasons(void)
{
	struct ptwatch_trace arg = mode_arg(PTWATCH_MODE_RING, 16 * PAGE, 1);
	int fd = open_device(), other = open_device(), perf;

	arg.rtit_ctl |= PTWATCH_RTIT_CTL_MTCEN | 1ULL << 14;
	FAILS(ioctl(fd, PTWATCH_IOC_TRACE_SETUP, &arg), EOPNOTSUPP, "an MTC period the CPU lacks");
	is(arg.reason, PTWATCH_REASON_RTIT_CTL, "the reason is rtit_ctl");
	is(arg.unsupported, PTWATCH_RTIT_CTL_MTCFREQ, "and the field is named");

	if (setup(other, 1))
		die("SETUP");
	arg = mode_arg(PTWATCH_MODE_RING, 16 * PAGE, 1);
	FAILS(ioctl(fd, PTWATCH_IOC_TRACE_SETUP, &arg), EBUSY, "a CPU of another session");
	is(arg.reason, PTWATCH_REASON_SESSION, "the reason is a session");
	is(arg.reason_cpu, 0, "on this CPU");
	is(arg.holder_pid, getpid(), "of this process");
	ok(!strcmp(arg.holder_comm, "device"), "with this name (%s)", arg.holder_comm);
	WORKS(setup(fd, 2), "another CPU is free for a second session");
	close(other);
	go(fd, PTWATCH_IOC_TRACE_RELEASE);

	perf = perf_pt_open(0);
	arg = mode_arg(PTWATCH_MODE_RING, 16 * PAGE, 1);
	FAILS(ioctl(fd, PTWATCH_IOC_TRACE_SETUP, &arg), EBUSY, "a CPU that perf has");
	is(arg.reason, PTWATCH_REASON_PERF, "the reason is perf");
	close(perf);
	close(fd);
}

/* ---- switch records ---- */

#define RECORDS	256U

static const volatile struct ptwatch_switches *map_switches(int fd, unsigned int cpu)
{
	void *map = mmap(NULL, PAGE + RECORDS * sizeof(struct ptwatch_switch), PROT_READ,
			 MAP_SHARED, fd, PTWATCH_MMAP_SWITCHES(cpu));

	if (map == MAP_FAILED)
		die("can't map the switch records");
	return map;
}

/* Two processes on CPU 0 that hand a byte to and fro. */
static void ping_pong(unsigned int rounds, pid_t *pids)
{
	int to[2], from[2];
	unsigned int i;
	char byte = 0;

	if (pipe(to) || pipe(from))
		die("no pipe");
	pids[0] = getpid();
	pids[1] = fork();
	if (pids[1] < 0)
		die("can't fork");
	if (!pids[1]) {
		close(to[1]);
		while (read(to[0], &byte, 1) == 1)
			if (write(from[1], &byte, 1) != 1)
				break;
		_exit(0);
	}
	for (i = 0; i < rounds; i++)
		if (write(to[1], &byte, 1) != 1 || read(from[0], &byte, 1) != 1)
			die("ping-pong");
	close(to[1]);
	waitpid(pids[1], NULL, 0);
	close(to[0]);
	close(from[0]);
	close(from[1]);
}

static void check_records(const struct ptwatch_switch *records, uint64_t first, uint64_t head,
			  const pid_t *pids)
{
	bool chain = true, time = true, cpu = true;
	unsigned int there = 0, back = 0;
	uint64_t n;

	for (n = first; n < head; n++) {
		const struct ptwatch_switch *r = &records[n % RECORDS];
		const struct ptwatch_switch *next = &records[(n + 1) % RECORDS];

		cpu &= r->cpu == 0;
		there += (pid_t)r->prev_tid == pids[0] && (pid_t)r->next_tid == pids[1] &&
			 (pid_t)r->prev_pid == pids[0] && (pid_t)r->next_pid == pids[1];
		back += (pid_t)r->prev_tid == pids[1] && (pid_t)r->next_tid == pids[0];
		if (n + 1 == head)
			break;
		chain &= r->next_tid == next->prev_tid;
		time &= r->tsc < next->tsc;
	}
	ok(cpu, "every record is of that CPU");
	ok(chain, "who gets the CPU is who loses it next");
	ok(time, "their times rise");
	ok(there >= 20 && back >= 20, "the two that took turns are there (%u and %u times)", there,
	   back);
}

void test_switches(void)
{
	struct ptwatch_trace good = mode_arg(PTWATCH_MODE_RING, 16 * PAGE, 1);
	const volatile struct ptwatch_switches *page;
	const struct ptwatch_switch *records;
	int fd = open_device();
	uint64_t head;
	pid_t pids[2];

	REFUSED(EINVAL, "64 switch records", arg.switch_records = 64);
	REFUSED(EINVAL, "200 switch records", arg.switch_records = 200);
	REFUSED(EINVAL, "2^21 switch records", arg.switch_records = 1U << 21);
	WORKS(set_up(fd, good), "SETUP without switch records");
	FAILS((long)mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, PTWATCH_MMAP_SWITCHES(0)), EINVAL,
	      "there are none to map");
	go(fd, PTWATCH_IOC_TRACE_RELEASE);

	good.switch_records = RECORDS;
	if (set_up(fd, good))
		die("SETUP with switch records");
	page = map_switches(fd, 0);
	is(page->size, sizeof(*page), "switches.size");
	is(page->cpu, 0, "switches.cpu");
	is(page->records, RECORDS, "switches.records");
	is(page->head, 0, "nothing before START");
	records = (const void *)((const uint8_t *)page + page->data_offset);
	go(fd, PTWATCH_IOC_TRACE_START);
	is(records[0].flags, PTWATCH_SWITCH_START, "the first record is who runs at START");
	is(records[0].next_tid, getpid(), "which is this process");
	ping_pong(30, pids);
	go(fd, PTWATCH_IOC_TRACE_STOP);
	head = live(&page->head);
	ok(head > 60 && head < RECORDS, "there are as many as switches (%llu)",
	   (unsigned long long)head);
	check_records(records, 0, head, pids);
	ping_pong(5, pids);
	is(live(&page->head), head, "none after STOP");

	/* More than there is room for: the newest are there, and the others are counted. */
	go(fd, PTWATCH_IOC_TRACE_START);
	ping_pong(RECORDS, pids);
	go(fd, PTWATCH_IOC_TRACE_STOP);
	head = live(&page->head);
	ok(head > 2 * RECORDS, "more than there is room for");
	check_records(records, head - RECORDS, head, pids);
	munmap((void *)page, PAGE + RECORDS * sizeof(struct ptwatch_switch));
	close(fd);
}

/* ---- targets ---- */

void test_processes(void)
{
	struct ptwatch_trace good = mode_arg(PTWATCH_MODE_RING, 16 * PAGE, 1);
	struct ptwatch_info info = { .size = sizeof(info) };
	int fd = open_device(), dir;
	pid_t gone;

	if (ioctl(fd, PTWATCH_IOC_INFO, &info))
		die("INFO");
	gone = fork();
	if (!gone)
		_exit(0);
	waitpid(gone, NULL, 0);
	good.target_kind = PTWATCH_TARGET_PROCESS;
	good.target = getpid();
	REFUSED(EINVAL, "a target of a kind that does not exist", arg.target_kind = 3);
	REFUSED(EINVAL, "a target of everybody", arg.target_kind = PTWATCH_TARGET_ALL);
	REFUSED(ESRCH, "a process that is gone", arg.target = gone);
	REFUSED(EINVAL, "children of a cgroup", arg.target_kind = PTWATCH_TARGET_CGROUP;
		arg.flags = PTWATCH_TRACE_FOLLOW_FORK);
	REFUSED(EBADF, "a cgroup that is none", arg.target_kind = PTWATCH_TARGET_CGROUP;
		arg.target = fd);

	WORKS(ioctl(fd, PTWATCH_IOC_TRACE_SETUP, &good), "SETUP of a process");
	is(good.filter, info.flags & PTWATCH_INFO_PTI ? PTWATCH_FILTER_SWITCH : PTWATCH_FILTER_CR3,
	   "is told by CR3, unless the kernel has page tables of its own");
	go(fd, PTWATCH_IOC_TRACE_START);
	work_ms(5);
	go(fd, PTWATCH_IOC_TRACE_STOP);
	go(fd, PTWATCH_IOC_TRACE_RELEASE);

	dir = open("/sys/fs/cgroup", O_RDONLY | O_CLOEXEC);
	good.filter = good.nr_cpus = 0;
	good.flags = PTWATCH_TRACE_FOLLOW_FORK;
	WORKS(ioctl(fd, PTWATCH_IOC_TRACE_SETUP, &good), "SETUP of a process and its children");
	is(good.filter, PTWATCH_FILTER_SWITCH, "is told by the task");
	close(dir);
	close(fd);
}

/* ---- a CPU whose ToPA has one entry (Broadwell) ---- */

void test_single(void)
{
	struct ptwatch_trace good = mode_arg(PTWATCH_MODE_RING, 16 * PAGE, 1), arg = good;
	struct ptwatch_info info = { .size = sizeof(info) };
	const volatile struct ptwatch_control *page;
	struct ptwatch_control c;
	int fd = open_device(), tries;
	const uint8_t *data;

	if (ioctl(fd, PTWATCH_IOC_INFO, &info))
		die("INFO");
	is(info.flags & PTWATCH_INFO_SINGLE_REGION, PTWATCH_INFO_SINGLE_REGION,
	   "INFO tells of a ToPA with one entry");
	is(info.modes, 1U << PTWATCH_MODE_RING, "which is good for a ring");
	is(info.rtit_ctl_required, PTWATCH_RTIT_CTL_BRANCHEN, "BranchEn is required");
	is(info.address_ranges, 0, "there are no ranges");

	arg.rtit_ctl &= ~PTWATCH_RTIT_CTL_BRANCHEN;
	FAILS(ioctl(fd, PTWATCH_IOC_TRACE_SETUP, &arg), EOPNOTSUPP, "SETUP without BranchEn");
	is(arg.unsupported, PTWATCH_RTIT_CTL_BRANCHEN, "names it");
	arg = mode_arg(PTWATCH_MODE_STREAM, 16 * PAGE, 1);
	FAILS(ioctl(fd, PTWATCH_IOC_TRACE_SETUP, &arg), EOPNOTSUPP, "a stream");
	is(arg.reason, PTWATCH_REASON_MODE, "the reason is the mode");
	arg = mode_arg(PTWATCH_MODE_BANKS, 16 * PAGE, 1);
	FAILS(ioctl(fd, PTWATCH_IOC_TRACE_SETUP, &arg), EOPNOTSUPP, "banks");
	arg = good;
	arg.buffer_size = 7 * PAGE;
	FAILS(ioctl(fd, PTWATCH_IOC_TRACE_SETUP, &arg), EOPNOTSUPP, "seven pages");
	is(arg.reason, PTWATCH_REASON_MODE, "the reason is the same");

	if (set_up(fd, good))
		die("SETUP of one region");
	page = map_control(fd, 0);
	data = map_data(fd, 0, 16 * PAGE);
	go(fd, PTWATCH_IOC_TRACE_START);
	go(fd, PTWATCH_IOC_TRACE_STOP);
	c = read_control(page);
	is(c.flags, 0, "a ring of one region that is not full");
	ok(c.head > 16 && starts_with_psb(data), "has a trace");
	for (tries = 0; tries < 100 && !(c.flags & PTWATCH_CONTROL_WRAPPED); tries++) {
		go(fd, PTWATCH_IOC_TRACE_START);
		work_ms(50);
		go(fd, PTWATCH_IOC_TRACE_STOP);
		c = read_control(page);
	}
	is(c.flags, PTWATCH_CONTROL_WRAPPED, "and is WRAPPED when it is");
	is(c.rtit_status & 0x30, 0, "IA32_RTIT_STATUS has neither Error nor Stopped");
	munmap((void *)page, PAGE);
	munmap((void *)data, 16 * PAGE);
	close(fd);
	ok(perf_pt_trace(0) > 0, "perf traces afterwards");
}
