// SPDX-License-Identifier: BSD-2-Clause
#include "control/device.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/number.h"
#include "control/holders.h"
#include "control/machine.h"

#define NEEDS_ROOT "needs root (CAP_SYS_ADMIN); run it with sudo"

static int no_module(struct ptw_error *err)
{
	return ptw_error_set(err, PTW_EXIT_UNSUPPORTED,
			     "ptwatch module is not loaded (no %s); load it: modprobe ptwatch, or insmod ptwatch.ko",
			     PTWATCH_DEVICE);
}

int ptw_device_open(struct ptw_device *device, struct ptw_error *err)
{
	memset(device, 0, sizeof(*device));
	device->fd = open(PTWATCH_DEVICE, O_RDWR | O_CLOEXEC);
	if (device->fd < 0) {
		switch (errno) {
		case ENOENT: case ENXIO: case ENODEV:
			return no_module(err);
		case EACCES: case EPERM:
			return ptw_error_set(err, PTW_EXIT_FAILED, "%s " NEEDS_ROOT, PTWATCH_DEVICE);
		default:
			return ptw_error_set(err, PTW_EXIT_FAILED, "cannot open %s: %s; `dmesg | tail` may tell more",
					     PTWATCH_DEVICE, strerror(errno));
		}
	}
	device->info.size = sizeof(device->info);
	if (ioctl(device->fd, PTWATCH_IOC_INFO, &device->info))
		return ptw_error_set(err, PTW_EXIT_UNSUPPORTED,
				     "%s does not answer as this program expects (%s); program and module must be of one version",
				     PTWATCH_DEVICE, strerror(errno));
	if (device->info.abi != PTWATCH_ABI_VERSION)
		return ptw_error_set(err, PTW_EXIT_UNSUPPORTED,
				     "the loaded module speaks ABI %u, this program %u; install both from one version",
				     device->info.abi, PTWATCH_ABI_VERSION);
	return 0;
}

static void unmap(struct ptw_device *device)
{
	size_t page = sysconf(_SC_PAGESIZE);

	for (size_t i = 0; i < device->trace_count; i++) {
		if (device->trace[i].control)
			munmap((void *)device->trace[i].control, page);
		if (device->trace[i].data)
			munmap((void *)device->trace[i].data, device->buffer_size);
		if (device->trace[i].switches)
			munmap((void *)device->trace[i].switches, device->trace[i].switches_size);
	}
	free(device->trace);
	device->trace = NULL;
	device->trace_count = 0;
}

void ptw_device_close(struct ptw_device *device)
{
	/* A mapping holds the session, so the mappings go first: close() then disarms before it returns. */
	unmap(device);
	if (device->fd >= 0)
		close(device->fd);
	device->fd = -1;
}

/* The period of @valid that is nearest to @wanted, shorter ones first. */
static unsigned int choose_period(uint32_t valid, unsigned int wanted)
{
	for (unsigned int far = 0; far < 16; far++) {
		if (far <= wanted && valid & 1U << (wanted - far))
			return wanted - far;
		if (wanted + far < 16 && valid & 1U << (wanted + far))
			return wanted + far;
	}
	return 0;
}

uint64_t ptw_trace_default_rtit_ctl(const struct ptwatch_info *info, uint64_t where)
{
	uint64_t ctl = where | PTWATCH_RTIT_CTL_BRANCHEN | (info->rtit_ctl & PTWATCH_RTIT_CTL_TSCEN);

	if (info->rtit_ctl & PTWATCH_RTIT_CTL_MTCEN && info->mtc_periods)
		ctl |= PTWATCH_RTIT_CTL_MTCEN | (uint64_t)choose_period(info->mtc_periods, 3) << 14;
	if (info->rtit_ctl & PTWATCH_RTIT_CTL_PSBFREQ && info->psb_periods)
		ctl |= (uint64_t)choose_period(info->psb_periods, 0) << 24;
	return ctl;
}

static int trace_denied(const struct ptw_device *device, uint64_t rtit_ctl, struct ptw_error *err)
{
	if (rtit_ctl & PTWATCH_RTIT_CTL_OS && device->info.flags & PTWATCH_INFO_LOCKDOWN)
		return ptw_error_set(err, PTW_EXIT_UNSUPPORTED,
				     "kernel lockdown (confidentiality) forbids tracing the kernel; boot without lockdown=confidentiality");
	return ptw_error_set(err, PTW_EXIT_FAILED, "tracing the kernel " NEEDS_ROOT);
}

static int trace_busy(const struct ptwatch_trace *setup, struct ptw_error *err)
{
	char perf[256], ours[256];
	int perfs = ptw_holders_text(PTW_HOLDER_PERF, perf, sizeof(perf));
	int sessions = ptw_holders_text(PTW_HOLDER_PTWATCH, ours, sizeof(ours));

	switch (setup->reason) {
	case PTWATCH_REASON_SESSION:
		return ptw_error_set(err, PTW_EXIT_FAILED,
				     "Intel PT of CPU %u is in use by another ptwatch session: %.16s (pid %d); end it and try again",
				     setup->reason_cpu, setup->holder_comm, setup->holder_pid);
	case PTWATCH_REASON_ENABLED:
		return ptw_error_set(err, PTW_EXIT_FAILED,
				     "Intel PT of CPU %u is switched on by someone who is neither perf nor ptwatch; firmware or a hypervisor may hold it",
				     setup->reason_cpu);
	case PTWATCH_REASON_VMX:
		return ptw_error_set(err, PTW_EXIT_UNSUPPORTED,
				     "this CPU cannot trace while VMX is on; stop virtual machines and `modprobe -r kvm_intel`");
	case PTWATCH_REASON_PERF:
		sessions = 0;
		break;
	}
	if (sessions && !perfs)
		return ptw_error_set(err, PTW_EXIT_FAILED, "Intel PT is in use by another ptwatch session: %s; end it and try again",
				     ours);
	if (perfs)
		return ptw_error_set(err, PTW_EXIT_FAILED,
				     "Intel PT is in use by perf, most likely %s; stop the perf session (e.g. `perf record -e intel_pt//`) and try again",
				     perf);
	return ptw_error_set(err, PTW_EXIT_FAILED,
			     "Intel PT is in use, but no process with a perf event is to be seen; firmware, a hypervisor, BTS/LBR or another container may hold it: `ptwatch info` shows more");
}

static int trace_unsupported(const struct ptw_device *device, const struct ptwatch_trace *setup, struct ptw_error *err)
{
	char names[256];

	if (!(device->info.flags & PTWATCH_INFO_PT))
		return ptw_error_set(err, PTW_EXIT_UNSUPPORTED,
				     "%s, so there is no trace to freeze; watch without --freeze works here, `make demo` shows the rest",
				     ptw_no_pt());
	if (device->info.flags & PTWATCH_INFO_VMX_CONFLICT)
		return ptw_error_set(err, PTW_EXIT_UNSUPPORTED,
				     "this CPU cannot trace while VMX is on; stop virtual machines and `modprobe -r kvm_intel`");
	switch (setup->reason) {
	case PTWATCH_REASON_RTIT_CTL:
		return ptw_error_set(err, PTW_EXIT_UNSUPPORTED,
				     "Intel PT of this CPU lacks what was asked for: %s; `ptwatch info` lists what it has",
				     ptw_rtit_names(setup->unsupported, names, sizeof(names)));
	case PTWATCH_REASON_RANGES:
		return ptw_error_set(err, PTW_EXIT_UNSUPPORTED,
				     "this CPU has %u address ranges, and %u were asked for; name fewer or larger ones",
				     device->info.address_ranges, setup->nr_ranges);
	case PTWATCH_REASON_MODE:
		return ptw_error_set(err, PTW_EXIT_UNSUPPORTED,
				     "Intel PT of this CPU has ToPA tables of one region only: it records into a ring of one region, e.g. --ring 4M");
	case PTWATCH_REASON_NO_PMI:
		return ptw_error_set(err, PTW_EXIT_UNSUPPORTED,
				     "this CPU cannot interrupt when a buffer is full (no architectural PMU, as in some virtual machines); record into a ring: --ring 16M");
	case PTWATCH_REASON_CPU_DIFFERS:
		return ptw_error_set(err, PTW_EXIT_UNSUPPORTED,
				     "CPU %u lacks what the other CPUs have; leave it out (-C), or ask for less: `ptwatch info`",
				     setup->reason_cpu);
	}
	if (!(device->info.flags & PTWATCH_INFO_TRACEABLE))
		return ptw_error_set(err, PTW_EXIT_UNSUPPORTED,
				     "Intel PT of this CPU lacks ToPA tables with many regions; watch without --freeze works here");
	return ptw_error_set(err, PTW_EXIT_UNSUPPORTED,
			     "Intel PT of this CPU lacks what was asked for; `ptwatch info` shows what it has");
}

static int setup_failed(const struct ptw_device *device, const struct ptwatch_trace *setup, int error,
			unsigned int cpus, struct ptw_error *err)
{
	char each[32], most[32];

	ptw_bytes(setup->buffer_size, each, sizeof(each));
	switch (error) {
	case EBUSY:
		if (device->info.flags & PTWATCH_INFO_VMX_CONFLICT)
			return trace_unsupported(device, setup, err);
		return trace_busy(setup, err);
	case EOPNOTSUPP:
		return trace_unsupported(device, setup, err);
	case EPERM:
		return trace_denied(device, setup->rtit_ctl, err);
	case ESRCH:
		return ptw_error_set(err, PTW_EXIT_FAILED, "there is no process %d to trace, or it has no user code (a kernel thread)",
				     setup->target);
	case EBADF:
		return ptw_error_set(err, PTW_EXIT_FAILED,
				     "that is no cgroup; it takes the directory of one, of version 2, e.g. /sys/fs/cgroup/system.slice");
	case ENOMEM:
		return ptw_error_set(err, PTW_EXIT_FAILED, "no memory for %s on each of %u CPUs; take a smaller buffer", each,
				     cpus);
	case EINVAL:
		return ptw_error_set(err, PTW_EXIT_FAILED,
				     "the module refuses a buffer of %s on these CPUs; a ring takes 4 KiB to %s, a stream 16 KiB at least, and CPUs must stay online meanwhile",
				     each, ptw_bytes(device->info.max_buffer_size, most, sizeof(most)));
	default:
		return ptw_error_set(err, PTW_EXIT_FAILED, "cannot set up the trace: %s; `dmesg | tail` may tell more",
				     strerror(error));
	}
}

/* The module would refuse these as it refuses a size. */
static int check_online(const struct ptw_trace_request *request, struct ptw_error *err)
{
	uint8_t *online;
	size_t size, offline = SIZE_MAX;
	char list[512];

	if (ptw_online_cpus(&online, &size) < 0)
		return 0;
	for (size_t i = 0; i < request->cpus_size * 8 && offline == SIZE_MAX; i++)
		if (request->cpus[i / 8] >> i % 8 & 1 && (i / 8 >= size || !(online[i / 8] >> i % 8 & 1)))
			offline = i;
	free(online);
	if (offline == SIZE_MAX)
		return 0;
	ptw_read_line("/sys/devices/system/cpu/online", list, sizeof(list));
	return ptw_error_set(err, PTW_EXIT_FAILED, "CPU %zu is not online; online: %s", offline, list);
}

/* How long the mapping is stands in its first page. */
static int map_switches(struct ptw_device *device, struct ptw_cpu_trace *trace, struct ptw_error *err)
{
	off_t offset = (off_t)PTWATCH_MMAP_SWITCHES(trace->cpu);
	size_t page = sysconf(_SC_PAGESIZE), size;
	const struct ptwatch_switches *first = mmap(NULL, page, PROT_READ, MAP_SHARED, device->fd, offset);
	void *map = MAP_FAILED;

	if (first != MAP_FAILED) {
		size = first->data_offset + first->records * sizeof(struct ptwatch_switch);
		munmap((void *)first, page);
		trace->switches_size = (size + page - 1) / page * page;
		map = mmap(NULL, trace->switches_size, PROT_READ, MAP_SHARED, device->fd, offset);
	}
	if (map == MAP_FAILED)
		return ptw_error_set(err, PTW_EXIT_FAILED, "cannot map the context switches of CPU %u: %s", trace->cpu,
				     strerror(errno));
	trace->switches = map;
	return 0;
}

static int map_cpu(struct ptw_device *device, struct ptw_cpu_trace *trace, bool switches, struct ptw_error *err)
{
	void *map = mmap(NULL, sysconf(_SC_PAGESIZE), PROT_READ, MAP_SHARED, device->fd,
			 (off_t)PTWATCH_MMAP_CONTROL(trace->cpu));

	if (map == MAP_FAILED)
		goto fail;
	trace->control = map;
	map = mmap(NULL, device->buffer_size, PROT_READ, MAP_SHARED, device->fd,
		   (off_t)PTWATCH_MMAP_DATA(trace->cpu));
	if (map == MAP_FAILED)
		goto fail;
	trace->data = map;
	return switches ? map_switches(device, trace, err) : 0;
fail:
	return ptw_error_set(err, PTW_EXIT_FAILED, "cannot map the trace of CPU %u: %s; take a smaller --buffer",
			     trace->cpu, strerror(errno));
}

int ptw_device_trace_setup(struct ptw_device *device, const struct ptw_trace_request *request,
			   struct ptw_error *err)
{
	struct ptwatch_trace setup = {
		.size = sizeof(setup),
		.rtit_ctl = request->rtit_ctl,
		.buffer_size = request->buffer_size,
		.pt_pmu_type = ptw_pt_pmu_type(),
		.flags = request->flags,
		.mode = request->mode,
		.switch_records = request->switch_records,
		.target_kind = request->target_kind,
		.target = request->target,
		.nr_ranges = request->nr_ranges,
	};
	const uint8_t *cpus = request->cpus;
	size_t cpus_size = request->cpus_size;
	uint8_t *online = NULL;
	unsigned int count = 0;
	int ret = -1;

	/*
	 * The module would take "every online CPU" too, but then we could not know which to map when one
	 * comes or goes just now: name them.
	 */
	if (!cpus) {
		if (ptw_online_cpus(&online, &cpus_size) < 0)
			return ptw_error_set(err, PTW_EXIT_FAILED,
					     "cannot read /sys/devices/system/cpu/online; is sysfs mounted on /sys?");
		cpus = online;
	} else if (device->info.flags & PTWATCH_INFO_PT && check_online(request, err)) {
		return -1;
	}
	memcpy(setup.ranges, request->ranges, sizeof(setup.ranges));
	for (size_t i = 0; i < cpus_size * 8; i++)
		count += cpus[i / 8] >> i % 8 & 1;
	setup.cpus = (uintptr_t)cpus;
	setup.cpus_size = cpus_size;
	if (ioctl(device->fd, PTWATCH_IOC_TRACE_SETUP, &setup)) {
		setup_failed(device, &setup, errno, count, err);
		goto out;
	}
	device->buffer_size = setup.buffer_size;
	device->filter = setup.filter;
	device->trace = calloc(count, sizeof(*device->trace));
	if (!device->trace) {
		ptw_error_set(err, PTW_EXIT_FAILED, "out of memory");
		goto out;
	}
	for (size_t i = 0; i < cpus_size * 8; i++) {
		if (!(cpus[i / 8] >> i % 8 & 1))
			continue;
		device->trace[device->trace_count].cpu = i;
		if (map_cpu(device, &device->trace[device->trace_count++], request->switch_records, err))
			goto out;
	}
	ret = 0;
out:
	free(online);
	return ret;
}

int ptw_device_trace_start(struct ptw_device *device, struct ptw_error *err)
{
	if (!ioctl(device->fd, PTWATCH_IOC_TRACE_START, 0))
		return 0;
	if (errno == EBUSY)
		return ptw_error_set(err, PTW_EXIT_FAILED,
				     "a virtual machine was started, and this CPU cannot trace while VMX is on; stop it and try again");
	return ptw_error_set(err, PTW_EXIT_FAILED, "cannot start tracing: %s; `dmesg | tail` may tell more",
			     strerror(errno));
}

int ptw_device_trace_stop(struct ptw_device *device, struct ptw_error *err)
{
	if (!ioctl(device->fd, PTWATCH_IOC_TRACE_STOP, 0))
		return 0;
	return ptw_error_set(err, PTW_EXIT_FAILED, "cannot stop tracing: %s; `dmesg | tail` may tell more",
			     strerror(errno));
}

int ptw_device_trace_flush(struct ptw_device *device, struct ptw_error *err)
{
	if (!ioctl(device->fd, PTWATCH_IOC_TRACE_FLUSH, 0))
		return 0;
	return ptw_error_set(err, PTW_EXIT_FAILED, "cannot publish the traces: %s; `dmesg | tail` may tell more",
			     strerror(errno));
}

int ptw_device_trace_advance(struct ptw_device *device, uint32_t cpu, uint64_t tail, struct ptw_error *err)
{
	struct ptwatch_advance advance = { .size = sizeof(advance), .cpu = cpu, .tail = tail };

	if (!ioctl(device->fd, PTWATCH_IOC_TRACE_ADVANCE, &advance))
		return 0;
	return ptw_error_set(err, PTW_EXIT_FAILED, "cannot give back what was read of CPU %u: %s; `dmesg | tail` may tell more",
			     cpu, strerror(errno));
}

const char *ptw_watch_place(const struct ptwatch_watch_entry *entry, char *buf, size_t size)
{
	const char *module = entry->flags & PTWATCH_WATCH_WAIT_MODULE ? entry->module : "", *label = entry->label;
	size_t used, length = strlen(label);
	char address[24];

	if (!*label) {
		snprintf(address, sizeof(address), "0x%llx", (unsigned long long)entry->address);
		label = address;
		length = strlen(label);
	}
	/* As a person would write it. */
	if (length > 4 && !strcmp(label + length - 4, "+0x0"))
		length -= 4;
	used = snprintf(buf, size, "%.63s%s%.*s", module, *module ? ":" : "", (int)length, label);
	if (entry->access == PTWATCH_ACCESS_X)
		snprintf(buf + used, size - used, ":x");
	else
		snprintf(buf + used, size - used, ":%u:%s", entry->len, entry->access == PTWATCH_ACCESS_W ? "w" : "rw");
	for (char *c = buf; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?';
	return buf;
}

/* Our watches that have debug registers, as "watch N (TARGET; OWNER), …". */
static void own_watches(struct ptw_device *device, char *buf, size_t size)
{
	struct ptwatch_watch_entry entry;
	struct ptwatch_watch_stat stat;
	struct ptw_error ignored;
	size_t used = 0;

	buf[0] = '\0';
	for (uint32_t from = 0; ptw_device_watch_next(device, from, &entry, &stat, &ignored) == 1; from = entry.id + 1) {
		char place[300], owner[48] = "persistent";

		if (!stat.armed_cpus || used >= size)
			continue;
		if (!(entry.flags & PTWATCH_WATCH_PERSISTENT)) {
			snprintf(owner, sizeof(owner), "%.15s", entry.owner_comm);
			if (entry.owner_tgid)
				snprintf(owner, sizeof(owner), "%.15s, pid %u", entry.owner_comm, entry.owner_tgid);
		}
		used += snprintf(buf + used, size - used, "%swatch %u (%s; %s)", used ? ", " : "", entry.id,
				 ptw_watch_place(&entry, place, sizeof(place)), owner);
	}
	for (char *c = buf; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?';
}

static int no_slot(struct ptw_device *device, const char *name, const struct ptwatch_refusal *why,
		   struct ptw_error *err)
{
	char who[512], kgdb[64], where[256], ours[360];
	unsigned int slots = device->info.breakpoint_slots;

	snprintf(where, sizeof(where), "a CPU has %u, shared with perf, gdb, ptrace and kgdb", slots);
	if (why->reason == PTWATCH_WHY_SLOTS)
		snprintf(where, sizeof(where), "it needs %u on each CPU; of the %u of CPU %u watches of ptwatch hold %u, others %s%u",
			 why->slots_needed, why->slots, why->cpu, why->slots_ours, why->slots_others ? "" : "at this moment ",
			 why->slots_others);
	/* Ours can be named. Of other events the kernel tells nobody whose they are: named is who may have them. */
	own_watches(device, ours, sizeof(ours));
	if (ptw_holders_text(PTW_HOLDER_ALL, who, sizeof(who)))
		return ptw_error_set(err, PTW_EXIT_FAILED, "no free debug register for %s (%s): %s%s%s may hold some: end it%s", name,
				     where, ours, *ours ? "; " : "", who, *ours ? ", or a watch with `ptwatch unwatch`" : "");
	if (*ours)
		return ptw_error_set(err, PTW_EXIT_FAILED, "no free debug register for %s (%s): %s; end one with `ptwatch unwatch`",
				     name, where, ours);
	if (!ptw_read_line("/sys/module/kgdboc/parameters/kgdboc", kgdb, sizeof(kgdb)) && kgdb[0])
		return ptw_error_set(err, PTW_EXIT_FAILED,
				     "no free debug register for %s (%s); kgdb is configured on %s and may hold them: `echo > /sys/module/kgdboc/parameters/kgdboc`",
				     name, where, kgdb);
	return ptw_error_set(err, PTW_EXIT_FAILED,
			     "no free debug register for %s (%s); no process is seen to hold one: look for other modules and kgdb",
			     name, where);
}

static int watch_invalid(const struct ptwatch_watch *watch, const char *name, const struct ptwatch_refusal *why,
			 struct ptw_error *err)
{
	unsigned long long address = watch->address;

	switch (why->reason) {
	case PTWATCH_WHY_CANONICAL:
		if (address < 0xffff800000000000ULL && !ptw_five_levels())
			return ptw_error_set(err, PTW_EXIT_FAILED,
					     "cannot watch %s: 0x%llx is no address of this kernel, its own begin at 0xffff800000000000",
					     name, address);
		return ptw_error_set(err, PTW_EXIT_FAILED, "cannot watch %s: 0x%llx is no address of the kernel", name, address);
	case PTWATCH_WHY_USER_RANGE:
		return ptw_error_set(err, PTW_EXIT_FAILED, "cannot watch %s: a process has no address 0x%llx", name, address);
	case PTWATCH_WHY_UNMAPPED:
		return ptw_error_set(err, PTW_EXIT_FAILED,
				     "cannot watch %s: 0x%llx is not mapped, or one the kernel refuses to read", name, address);
	case PTWATCH_WHY_KERNEL:
		return ptw_error_set(err, PTW_EXIT_FAILED,
				     "cannot watch %s: 0x%llx is one the kernel refuses (entry code, GDT, TSS, the debug registers' own data)",
				     name, address);
	case PTWATCH_WHY_NOT_PERCPU:
		return ptw_error_set(err, PTW_EXIT_FAILED, "cannot watch %s: 0x%llx is not the address of a per-CPU variable", name,
				     address);
	case PTWATCH_WHY_ALIGN:
		return ptw_error_set(err, PTW_EXIT_FAILED, "cannot watch %s: 0x%llx is not aligned to %u bytes", name, address,
				     watch->len < 8 ? watch->len : 8);
	case PTWATCH_WHY_CPUS:
		return ptw_error_set(err, PTW_EXIT_FAILED, "cannot watch %s: --cpus names a CPU this machine can't have", name);
	case PTWATCH_WHY_LABEL:
		return ptw_error_set(err, PTW_EXIT_FAILED, "cannot watch %s: the module takes names of printable ASCII only", name);
	case PTWATCH_WHY_FIELD:
	case PTWATCH_WHY_LENGTH:
	case PTWATCH_WHY_FILTER:
		return ptw_error_set(err, PTW_EXIT_FAILED,
				     "cannot watch %s: the module does not take what was asked for; program and module must be of one version",
				     name);
	case PTWATCH_WHY_NO_TRACE:
		return ptw_error_set(err, PTW_EXIT_FAILED, "cannot watch %s: there is no trace to act on", name);
	default:
		return ptw_error_set(err, PTW_EXIT_FAILED,
				     "cannot watch %s: 0x%llx is not mapped, or one the kernel refuses (entry code, GDT, TSS, the debug registers' own data)",
				     name, address);
	}
}

int ptw_device_watch_add(struct ptw_device *device, struct ptwatch_watch *watch, const char *name,
			 struct ptw_error *err)
{
	struct ptwatch_refusal why = { .size = sizeof(why) };

	watch->size = sizeof(*watch);
	watch->refusal = (uintptr_t)&why;
	if (!ioctl(device->fd, PTWATCH_IOC_WATCH_ADD, watch))
		return 0;
	switch (errno) {
	case ENOSPC:
		return no_slot(device, name, &why, err);
	case EPERM:
		if (why.reason == PTWATCH_WHY_LOCKDOWN || device->info.flags & PTWATCH_INFO_LOCKDOWN)
			return ptw_error_set(err, PTW_EXIT_UNSUPPORTED,
					     "kernel lockdown (confidentiality) forbids watching kernel memory; boot without lockdown=confidentiality");
		return ptw_error_set(err, PTW_EXIT_FAILED, "watching %s " NEEDS_ROOT,
				     watch->flags & PTWATCH_WATCH_USER ? "this process" : "kernel memory");
	case EINVAL:
		return watch_invalid(watch, name, &why, err);
	case ENOENT:
		return ptw_error_set(err, PTW_EXIT_FAILED, "cannot watch %s: module %s is loaded and has no symbol '%s'", name,
				     watch->module, watch->symbol);
	case ESRCH:
		return ptw_error_set(err, PTW_EXIT_FAILED, "cannot watch %s: process %u has ended", name, watch->tgid);
	case EOPNOTSUPP:
		return ptw_error_set(err, PTW_EXIT_UNSUPPORTED,
				     "this kernel has no hardware breakpoints (CONFIG_HAVE_HW_BREAKPOINT); %s can't be watched",
				     name);
	default:
		return ptw_error_set(err, PTW_EXIT_FAILED, "cannot watch %s: %s; `dmesg | tail` may tell more", name,
				     strerror(errno));
	}
}

int ptw_device_watch_next(struct ptw_device *device, uint32_t from, struct ptwatch_watch_entry *entry,
			  struct ptwatch_watch_stat *stat, struct ptw_error *err)
{
	for (;; from = entry->id + 1) {
		memset(entry, 0, sizeof(*entry));
		entry->size = sizeof(*entry);
		entry->id = from;
		if (ioctl(device->fd, PTWATCH_IOC_WATCH_NEXT, entry)) {
			if (errno == ENOENT)
				return 0;
			if (errno == EPERM)
				return ptw_error_set(err, PTW_EXIT_FAILED, "listing the watches of everyone " NEEDS_ROOT);
			return ptw_error_set(err, PTW_EXIT_FAILED, "cannot list watches: %s; program and module must be of one version",
					     strerror(errno));
		}
		memset(stat, 0, sizeof(*stat));
		stat->size = sizeof(*stat);
		stat->id = entry->id;
		stat->flags = PTWATCH_STAT_ANY;
		if (!ioctl(device->fd, PTWATCH_IOC_WATCH_STAT, stat))
			return 1;
		/* It ended in between: the next one. */
		if (errno != ENOENT || entry->id == UINT32_MAX)
			return ptw_error_set(err, PTW_EXIT_FAILED, "cannot read the counts of watch %u: %s", entry->id,
					     strerror(errno));
	}
}

int ptw_device_watch_remove(struct ptw_device *device, uint32_t id, struct ptw_error *err)
{
	if (!ioctl(device->fd, PTWATCH_IOC_WATCH_REMOVE, (unsigned long)id))
		return 0;
	if (errno == ENOENT)
		return ptw_error_set(err, PTW_EXIT_FAILED, "there is no watch %u (any more)", id);
	if (errno == EPERM)
		return ptw_error_set(err, PTW_EXIT_FAILED, "ending a watch " NEEDS_ROOT);
	return ptw_error_set(err, PTW_EXIT_FAILED, "cannot end watch %u: %s", id, strerror(errno));
}

int ptw_device_watch_stat(struct ptw_device *device, uint32_t id, struct ptwatch_watch_stat *stat,
			  struct ptw_error *err)
{
	memset(stat, 0, sizeof(*stat));
	stat->size = sizeof(*stat);
	stat->id = id;
	if (!ioctl(device->fd, PTWATCH_IOC_WATCH_STAT, stat))
		return 0;
	return ptw_error_set(err, PTW_EXIT_FAILED, "cannot read the counts of watch %u: %s; was the module unloaded?", id,
			     strerror(errno));
}

int ptw_control_read(const struct ptwatch_control *page, struct ptwatch_control *copy)
{
	const volatile uint32_t *sequence = &page->sequence;
	uint32_t before;
	size_t size;

	for (int tries = 0; tries < 100000; tries++) {
		before = *sequence;
		atomic_thread_fence(memory_order_acquire);
		if (!(before & 1)) {
			size = *(const volatile uint32_t *)&page->size;
			if (size > sizeof(*copy))
				size = sizeof(*copy);
			/* An older module fills less; the rest reads as 0. */
			memset(copy, 0, sizeof(*copy));
			memcpy(copy, page, size);
			/* The copy must be complete before the sequence is read again. */
			atomic_thread_fence(memory_order_acquire);
			if (*sequence == before)
				return 0;
		}
		/* The writer may sit on a CPU of ours that was preempted by the hypervisor. */
		if (tries > 1000)
			sched_yield();
	}
	return -1;
}

struct ptw_trace_pieces ptw_trace_pieces(const struct ptwatch_control *control, const uint8_t *data)
{
	struct ptw_trace_pieces pieces = { 0 };
	uint64_t head = control->head > control->data_size ? control->data_size : control->head;

	if (control->flags & PTWATCH_CONTROL_WRAPPED && head < control->data_size) {
		pieces.first = data + head;
		pieces.first_size = control->data_size - head;
		pieces.second = data;
		pieces.second_size = head;
	} else {
		pieces.first = data;
		pieces.first_size = head;
	}
	return pieces;
}
