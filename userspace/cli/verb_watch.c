// SPDX-License-Identifier: BSD-2-Clause
/*
 * ptwatch watch: arm hardware breakpoints, print what hits them, and keep the trace that the hit froze.
 *
 * Nothing here needs undoing: all that is armed belongs to the open device and ends with it, however the
 * program ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cli/alarm_printer.h"
#include "cli/beside.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/verb.h"
#include "cli/watch_options.h"
#include "common/number.h"
#include "control/alarm_listener.h"
#include "control/device.h"
#include "control/machine.h"
#include "control/watch_target.h"
#include "recording/recording.h"
#include "report/alarm_point.h"
#include "report/alarm_text.h"

#define VERB "watch"
/* A PMU type no kernel gives out: recordings want one also where perf has no intel_pt. */
#define NO_PMU 1000
/* Alarms kept for the recording; the first ones froze, later ones are of less and less interest. */
#define MAX_KEPT 4096
#define NS_PER_SEC 1000000000ULL
/* Milliseconds between two looks at whether the watches live: nothing tells of a module that was unloaded. */
#define CHECK_INTERVAL 1000

struct session {
	const struct watch_options *opt;
	struct ptw_device device;
	struct ptw_alarm_listener *listener;
	struct alarm_printer printer;
	struct ptw_recording_writer *writer;
	struct beside beside;	/* of the trace, which has a writer */
	uint32_t id[MAX_TARGETS];
	uint64_t alarms;
	struct ptw_alarm *kept;
	size_t kept_count;
	ssize_t pending;	/* the kept alarm whose trace line waits for the recording; -1: none */
	bool frozen;
	bool damaged;		/* a CPU ended its trace by itself */
	uint64_t stack_start, stack_end;	/* of --if-stack */
	int process[MAX_TARGETS];	/* pidfd of the process that the target's place belongs to; -1: none */
	struct cli_command command;
	bool all_ended;		/* no watch can hit any more */
	pid_t owner_ended;	/* process that ended, to which a target belonged; 0: none */
};

/* ---- alarms ---- */

static void print_trace_line(const struct session *s, const struct ptw_alarm *alarm, int64_t insns_after)
{
	if (s->opt->json)
		return;
	ptw_alarm_write_trace_text(stdout, alarm, insns_after);
	cli_sync();
}

static bool keep_alarm(struct session *s, const struct ptw_alarm *alarm)
{
	struct ptw_alarm *kept;

	if (s->kept_count == MAX_KEPT)
		return false;
	kept = realloc(s->kept, (s->kept_count + 1) * sizeof(*kept));
	if (!kept)
		return false;
	s->kept = kept;
	s->kept[s->kept_count++] = *alarm;
	return true;
}

/* Nobody is there to be told more once stdout can't be written. */
static bool wants_more(const struct session *s)
{
	if (cli_sync())
		return false;
	return !s->opt->count || s->alarms < s->opt->count;
}

static void say_why_not_frozen(const struct session *s, const struct ptw_alarm *alarm)
{
	struct ptwatch_control control;

	for (size_t i = 0; i < s->device.trace_count; i++) {
		const struct ptw_cpu_trace *trace = &s->device.trace[i];

		if (trace->cpu != alarm->cpu)
			continue;
		if (!ptw_control_read(trace->control, &control) && control.state == PTWATCH_STATE_ERROR)
			cli_progress(VERB, "this alarm froze no trace: CPU %u had ended its trace with an error", alarm->cpu);
		else
			cli_progress(VERB, "this alarm froze no trace: that of CPU %u had been stopped by an alarm before",
				     alarm->cpu);
		return;
	}
	cli_progress(VERB, "this alarm froze no trace: CPU %u is not traced", alarm->cpu);
}

static void on_alarm(const struct ptw_alarm *alarm, void *arg)
{
	struct session *s = arg;
	bool froze = alarm->have_trace && alarm->trace_state == PTWATCH_STATE_FROZEN;
	bool kept = false;
	unsigned int i;

	/* The group carries everyone's alarms. */
	for (i = 0; i < s->opt->targets; i++)
		if (s->id[i] == alarm->watch)
			break;
	if (i == s->opt->targets || !wants_more(s))
		return;
	s->alarms++;
	if (s->opt->actions & TRACE_ACTIONS)
		kept = keep_alarm(s, alarm);
	alarm_printer_print(&s->printer, alarm);
	if (!(s->opt->actions & PTWATCH_ACTION_FREEZE))
		return;
	if (!froze) {
		say_why_not_frozen(s, alarm);
		return;
	}
	s->frozen = true;
	/* The line that ends the block waits for the decoder, unless the next block is to come first. */
	if (!wants_more(s) && kept)
		s->pending = s->kept_count - 1;
	else
		print_trace_line(s, alarm, -1);
}

/* ---- arming ---- */

static int load_symbols(struct session *s, struct ptw_error *err)
{
	bool needed = false;

	for (unsigned int i = 0; i < s->opt->targets; i++)
		needed |= s->opt->target[i].kind == PTW_PLACE_SYMBOL || s->opt->target[i].pid;
	needed |= !!s->opt->stack;
	s->printer.modules = alarm_printer_modules();
	s->printer.symbols = ptw_symbols_new();
	if (!s->printer.symbols)
		return ptw_error_set(err, PTW_EXIT_FAILED, "out of memory");
	if (!ptw_symbols_load_kallsyms(s->printer.symbols, "/proc/kallsyms", err))
		return 0;
	/* Without names an address can still be watched. */
	ptw_symbols_free(s->printer.symbols);
	s->printer.symbols = NULL;
	return needed ? -1 : 0;
}

/* What was asked for can be done, and may yet not be what was meant. */
static void tell_remarks(const struct watch_options *opt)
{
	bool told = false;

	for (unsigned int i = 0; i < opt->targets; i++) {
		const struct ptw_watch_target *target = &opt->target[i];

		if (target->note[0])
			cli_progress(VERB, "%s: %s", target->text, target->note);
		if (target->is_code)
			cli_progress(VERB, "%s is code, and this watches data accesses to its bytes; mode x watches its execution", target->text);
		/* Breakpoints are compared with where instructions begin. */
		if (target->inside_code && !told)
			cli_progress(VERB, "%s is hit only if an instruction begins there; within one nothing ever hits", target->text);
		told |= target->inside_code;
	}
}

static int check_slots(const struct session *s, struct ptw_error *err)
{
	unsigned int slots = s->device.info.breakpoint_slots, needed = 0, widest = 0;

	for (unsigned int i = 0; i < s->opt->targets; i++) {
		unsigned int own = ptw_watch_target_slots(&s->opt->target[i]);

		needed += own;
		widest = own > widest ? own : widest;
	}
	if (needed <= slots)
		return 0;
	if (widest == 1)
		return ptw_error_set(err, PTW_EXIT_FAILED, "%u targets, but a CPU has %u debug registers; watch fewer",
				     s->opt->targets, slots);
	return ptw_error_set(err, PTW_EXIT_FAILED,
			     "these targets need %u debug registers (one for each 8 bytes), but a CPU has %u; watch fewer or smaller ones",
			     needed, slots);
}

/* What depends on the sizes and types of the targets. */
static int check_condition(struct session *s, struct ptw_error *err)
{
	for (unsigned int i = 0; s->opt->has_condition && i < s->opt->targets; i++) {
		const struct ptw_watch_target *target = &s->opt->target[i];
		struct ptw_value_condition fitted = s->opt->condition;

		if (target->access == PTWATCH_ACCESS_X)
			return ptw_error_set(err, PTW_EXIT_USAGE, "--if: %s is about execution, which has no value", target->text);
		if (target->len > 8 && fitted.op == PTW_VALUE_CHANGED)
			continue;
		if (target->len > 8)
			return ptw_error_set(err, PTW_EXIT_USAGE, "--if %s: %s has %u bytes, and of more than 8 only 'changed' can be told",
					     fitted.text, target->text, target->len);
		if (ptw_value_condition_fit(&fitted, target->len, target->is_signed, err))
			return -1;
	}
	return 0;
}

/* [start, end) of the function that --if-stack names. */
static int resolve_stack(struct session *s, struct ptw_error *err)
{
	const struct ptw_symbol *symbol;
	uint64_t address;

	if (!s->opt->stack)
		return 0;
	if (ptw_symbols_resolve(s->printer.symbols, s->opt->stack, &address, &symbol, err))
		return -1;
	if (!symbol || address != symbol->addr || !strchr("tTwW", symbol->type))
		return ptw_error_set(err, PTW_EXIT_FAILED, "--if-stack %s: not a function", s->opt->stack);
	s->stack_start = address;
	s->stack_end = ptw_symbols_end(s->printer.symbols, symbol);
	return 0;
}

static int resolve_targets(struct session *s, struct watch_options *opt, struct ptw_error *err)
{
	struct ptw_target_context context = { .wait_module = opt->wait_module, .pid = opt->pid };
	int ret = 0;

	/* First of all: without the module, or the right to use it, it matters little what else is wrong. */
	if (ptw_device_open(&s->device, err))
		return -1;
	if (load_symbols(s, err))
		return -1;
	s->printer.json = opt->json;
	if (opt->json)
		ptw_perf_time(&s->printer.clock);
	context.symbols = s->printer.symbols;
	for (unsigned int i = 0; i < opt->targets && !ret; i++) {
		ret = ptw_watch_target_resolve(&opt->target[i], &context, err);
		if (opt->percpu)
			opt->target[i].flags |= PTWATCH_WATCH_PERCPU;
	}
	ptw_target_context_release(&context);
	if (ret || check_condition(s, err) || resolve_stack(s, err) || check_slots(s, err))
		return -1;
	tell_remarks(opt);
	return 0;
}

static int start_trace(struct session *s, struct ptw_error *err)
{
	const struct ptwatch_info *info = &s->device.info;
	struct ptw_trace_request request = { .cpus = s->opt->cpus, .cpus_size = s->opt->cpus_size };
	struct ptw_trace_config config = { .rtit_ctl = ptw_trace_default_rtit_ctl(info, s->opt->where) };
	uint64_t page = sysconf(_SC_PAGESIZE);
	int pmu = ptw_pt_pmu_type();
	char text[32];

	request.rtit_ctl = config.rtit_ctl;
	request.buffer_size = (s->opt->buffer + page - 1) / page * page;
	if (info->max_buffer_size && request.buffer_size > info->max_buffer_size) {
		if (s->opt->buffer_text)
			return ptw_error_set(err, PTW_EXIT_FAILED, "--buffer %s is larger than this machine gives; take at most %s, a CPU's share of half its memory",
					     s->opt->buffer_text, ptw_bytes(info->max_buffer_size, text, sizeof(text)));
		request.buffer_size = info->max_buffer_size;
	}
	/* With --start a hit ends the pause. */
	if (s->opt->actions & PTWATCH_ACTION_START)
		request.flags |= PTWATCH_TRACE_PAUSED;
	s->beside.verb = VERB;
	if (beside_setup(&s->beside, &s->device, &request, err))
		return -1;

	config.switches = true;
	config.switch_traced = config.rtit_ctl & PTWATCH_RTIT_CTL_OS;
	config.params.family = info->family;
	config.params.model = info->model;
	config.params.stepping = info->stepping;
	config.params.bits = 64;
	config.params.mtc_freq = config.rtit_ctl >> 14 & 0xf;
	config.params.nom_freq = info->max_nonturbo_ratio;
	config.params.cpuid_0x15_eax = info->cpuid_15[0];
	config.params.cpuid_0x15_ebx = info->cpuid_15[1];
	ptw_perf_time(&config.params);
	config.pt_pmu_type = pmu < 0 ? NO_PMU : pmu;
	memcpy(config.cpuid_14_0, info->cpuid_14_0, sizeof(config.cpuid_14_0));
	memcpy(config.cpuid_14_1, info->cpuid_14_1, sizeof(config.cpuid_14_1));
	/*
	 * Now rather than after the alarm: what can't be written should be known before anyone waits for
	 * it.
	 */
	s->writer = ptw_recording_create(s->opt->output, &config, err);
	if (!s->writer || beside_begin(&s->beside, s->writer, err))
		return -1;
	return ptw_device_trace_start(&s->device, err);
}

static uint32_t value_op(enum ptw_value_op op)
{
	static const uint32_t ops[] = {
		[PTW_VALUE_CHANGED] = PTWATCH_VALUE_CHANGED, [PTW_VALUE_ANY] = PTWATCH_VALUE_NE, [PTW_VALUE_EQ] = PTWATCH_VALUE_EQ,
		[PTW_VALUE_NE] = PTWATCH_VALUE_NE, [PTW_VALUE_LT] = PTWATCH_VALUE_LT, [PTW_VALUE_LE] = PTWATCH_VALUE_LE,
		[PTW_VALUE_GT] = PTWATCH_VALUE_GT, [PTW_VALUE_GE] = PTWATCH_VALUE_GE,
	};

	return ops[op];
}

static void fill_condition(const struct watch_options *opt, const struct ptw_watch_target *target,
			   struct ptwatch_watch *watch)
{
	struct ptw_value_condition fitted = opt->condition;

	if (!opt->has_condition)
		return;
	watch->value_op = value_op(fitted.op);
	if (fitted.op == PTW_VALUE_CHANGED)
		return;
	/* It was checked before. */
	ptw_value_condition_fit(&fitted, target->len, target->is_signed, NULL);
	watch->value = fitted.value;
	watch->value_mask = fitted.mask;
	if (fitted.is_signed) {
		watch->value_flags = PTWATCH_VALUE_SIGNED;
		watch->value = (int64_t)(fitted.value << (64 - 8 * target->len)) >> (64 - 8 * target->len);
		watch->value_mask = 0;
	}
}

static void fill_watch(const struct session *s, const struct ptw_watch_target *target, struct ptwatch_watch *watch)
{
	const struct watch_options *opt = s->opt;

	*watch = (struct ptwatch_watch){
		.flags = target->flags | (opt->persistent ? PTWATCH_WATCH_PERSISTENT : 0),
		.address = target->address,
		.len = target->len,
		.access = target->access,
		.actions = opt->actions,
		.max_hits = opt->count,
		.max_rate = opt->rate,
		.tgid = target->tgid,
		.nr_filters = opt->filters,
		.filters = opt->filters ? (uintptr_t)opt->filter : 0,
		.cpus = (uintptr_t)opt->hit_cpus,
		.cpus_size = opt->hit_cpus ? opt->hit_cpus_size : 0,
		.skip = opt->skip,
		.stack_start = s->stack_start,
		.stack_end = s->stack_end,
		.max_storm = opt->storm,
	};
	memcpy(watch->label, target->label, sizeof(watch->label));
	memcpy(watch->module, target->module, sizeof(watch->module));
	memcpy(watch->symbol, target->symbol, sizeof(watch->symbol));
	fill_condition(opt, target, watch);
}

static void tell_armed(const struct ptw_watch_target *target, const struct ptwatch_watch_stat *stat,
		       const char *then)
{
	char where[128], on[64];

	if (stat->state == PTWATCH_WATCH_WAITING) {
		fprintf(stderr, "armed: %s as soon as module %s is loaded, %s (not seen: writes by NMI, #MC and #DB handlers, DMA)\n",
			target->text, target->module, then);
		return;
	}
	snprintf(where, sizeof(where), "at 0x%016" PRIx64, target->address);
	if (target->flags & PTWATCH_WATCH_WAIT_MODULE)
		snprintf(where, sizeof(where), "in module %s", target->module);
	else if (target->flags & PTWATCH_WATCH_PERCPU)
		snprintf(where, sizeof(where), "(per-CPU)");
	if (target->flags & PTWATCH_WATCH_USER && stat->state != PTWATCH_WATCH_ARMED)
		snprintf(on, sizeof(on), "in process %d", target->tgid);
	else if (target->flags & PTWATCH_WATCH_USER)
		snprintf(on, sizeof(on), "in %u thread%s of process %d", stat->armed_cpus, stat->armed_cpus == 1 ? "" : "s",
			 target->tgid);
	else
		snprintf(on, sizeof(on), "on %u CPU%s", stat->armed_cpus, stat->armed_cpus == 1 ? "" : "s");
	fprintf(stderr, "armed: %s %s %s, %s (not seen: writes by NMI, #MC and #DB handlers, DMA)\n", target->text, where, on,
		then);
}

static int arm(struct session *s, struct ptw_error *err)
{
	struct ptwatch_watch_stat stat;
	uint8_t *online;
	size_t size;
	int count = ptw_online_cpus(&online, &size);
	char then[64];

	if (count > 0)
		free(online);
	for (unsigned int i = 0; i < s->opt->targets; i++) {
		const struct ptw_watch_target *target = &s->opt->target[i];
		struct ptwatch_watch watch;

		fill_watch(s, target, &watch);
		if (ptw_device_watch_add(&s->device, &watch, target->text, err))
			return -1;
		s->id[i] = watch.id;
		if (target->pid)
			s->process[i] = syscall(SYS_pidfd_open, ptw_thread_tgid(target->pid), 0);
		else if (target->tgid)
			s->process[i] = syscall(SYS_pidfd_open, target->tgid, 0);
		/* It may have hit, and be disarmed, already. */
		if (ptw_device_watch_stat(&s->device, watch.id, &stat, NULL) || stat.state == PTWATCH_WATCH_DONE)
			stat = (struct ptwatch_watch_stat){ .armed_cpus = count > 0 ? count : 0 };
		snprintf(then, sizeof(then), s->opt->persistent ? "stays as watch %u" : "waiting…", watch.id);
		tell_armed(target, &stat, then);
	}
	return 0;
}

/* ---- waiting ---- */

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * NS_PER_SEC + time.tv_nsec;
}

/* Whether no watch can hit any more: each had its --count, or what it watched is gone. */
static bool all_ended(struct session *s)
{
	struct ptwatch_watch_stat stat;

	for (unsigned int i = 0; i < s->opt->targets; i++)
		if (!ptw_device_watch_stat(&s->device, s->id[i], &stat, NULL) &&
		    (stat.state == PTWATCH_WATCH_ARMED || stat.state == PTWATCH_WATCH_WAITING))
			return false;
	return true;
}

/* Whether every hit of the watches that can become an alarm has been sent. */
static bool all_delivered(struct session *s)
{
	struct ptwatch_watch_stat stat;

	for (unsigned int i = 0; i < s->opt->targets; i++) {
		if (ptw_device_watch_stat(&s->device, s->id[i], &stat, NULL))
			return true;
		if (stat.hits != stat.alarms + stat.filtered + stat.ignored + stat.rate_limited + stat.dropped)
			return false;
	}
	return true;
}

/* An alarm passes through two contexts of the kernel before it is sent: give those on their way a moment. */
static int collect_stragglers(struct session *s, struct ptw_error *err)
{
	bool done;

	for (int i = 0; i < 100 && wants_more(s); i++) {
		done = all_delivered(s);
		if (ptw_alarm_listener_receive(s->listener, on_alarm, s, err))
			return -1;
		if (done)
			break;
		usleep(10000);
	}
	return 0;
}

static int wait_for_alarms(struct session *s, struct ptw_error *err)
{
	uint64_t deadline = s->opt->timeout ? now() + s->opt->timeout : 0, overruns = 0, time;
	struct pollfd fds[3 + MAX_TARGETS] = {
		{ .fd = ptw_alarm_listener_fd(s->listener), .events = POLLIN },
		{ .fd = s->command.signals, .events = POLLIN },
	};
	unsigned int count = 2 + s->opt->targets;

	if (s->writer)
		fds[count++] = (struct pollfd){ .fd = beside_fd(&s->beside), .events = POLLIN };

	/* Memory that belongs to a process is given to others when it has ended. A negative fd is skipped. */
	for (unsigned int i = 0; i < s->opt->targets; i++)
		fds[2 + i] = (struct pollfd){ .fd = s->process[i], .events = POLLIN };
	while (wants_more(s) && !s->command.signal && !s->command.ended && !s->owner_ended) {
		int wait = CHECK_INTERVAL, ready;

		if (deadline) {
			time = now();
			if (time >= deadline)
				break;
			/* Rounded up, so that the last round does not spin. */
			time = (deadline - time) / 1000000 + 1;
			wait = time > CHECK_INTERVAL ? CHECK_INTERVAL : time;
		}
		ready = poll(fds, count, wait);
		if (ready < 0 && errno != EINTR)
			return ptw_error_set(err, PTW_EXIT_FAILED, "cannot wait for alarms: %s", strerror(errno));
		cli_signals_read(&s->command);
		if (s->writer)
			beside_round(&s->beside, false);
		for (unsigned int i = 0; i < s->opt->targets; i++)
			if (fds[2 + i].revents)
				s->owner_ended = s->opt->target[i].pid ? s->opt->target[i].pid : s->opt->target[i].tgid;
		if (ptw_alarm_listener_receive(s->listener, on_alarm, s, err))
			return -1;
		if (ptw_alarm_listener_overruns(s->listener, NULL) != overruns) {
			overruns = ptw_alarm_listener_overruns(s->listener, NULL);
			cli_progress(VERB, "the kernel sends alarms faster than they are read, some are lost; --rate lowers it");
			/* The last one may be among them: then waiting on would be for ever. */
			ready = 0;
		}
		if (!ready && all_ended(s)) {
			s->all_ended = true;
			break;
		}
	}
	return collect_stragglers(s, err);
}

/* ---- afterwards ---- */

static void report_losses(struct session *s)
{
	struct ptwatch_watch_stat stat;
	uint64_t overruns, lost;
	char number[32];

	overruns = ptw_alarm_listener_overruns(s->listener, &lost);
	if (overruns)
		cli_progress(VERB, "%s alarms lost on their way (the socket overflowed %" PRIu64 " times)",
			     ptw_commas(lost, number, sizeof(number)), overruns);
	for (unsigned int i = 0; i < s->opt->targets; i++) {
		if (ptw_device_watch_stat(&s->device, s->id[i], &stat, NULL))
			continue;
		if (stat.rate_limited)
			cli_progress(VERB, "%s: %s hits over the rate were counted only; --rate raises it", s->opt->target[i].text,
				     ptw_commas(stat.rate_limited, number, sizeof(number)));
		if (stat.state == PTWATCH_WATCH_STORM)
			cli_progress(VERB, "%s: disarmed after %s hits, as they came too fast; --storm sets how fast they may", s->opt->target[i].text,
				     ptw_commas(stat.hits, number, sizeof(number)));
		if (stat.state == PTWATCH_WATCH_GONE && s->opt->target[i].kind == PTW_PLACE_SYMBOL)
			cli_progress(VERB, "%s: disarmed, as its module was unloaded", s->opt->target[i].text);
		if (stat.missed)
			cli_progress(VERB, "%s: %s times a CPU or thread that came later could not be armed (no free debug register)",
				     s->opt->target[i].text, ptw_commas(stat.missed, number, sizeof(number)));
		if (stat.dropped)
			cli_progress(VERB, "%s: %s hits were dropped because no record was free", s->opt->target[i].text,
				     ptw_commas(stat.dropped, number, sizeof(number)));
	}
}

static int add_traces(struct session *s, uint64_t *bytes, struct ptw_error *err)
{
	for (size_t i = 0; i < s->device.trace_count; i++) {
		const struct ptw_cpu_trace *trace = &s->device.trace[i];
		struct ptw_trace_pieces pieces;
		struct ptwatch_control control;

		if (ptw_control_read(trace->control, &control))
			return ptw_error_set(err, PTW_EXIT_FAILED,
					     "the control page of CPU %u does not come to rest; `dmesg | tail` may tell more", trace->cpu);
		if (control.state == PTWATCH_STATE_RUNNING)
			continue;
		if (control.state == PTWATCH_STATE_ERROR) {
			s->damaged = true;
			cli_progress(VERB,
				     "CPU %u ended its trace with an error (status 0x%" PRIx64 "); what it wrote before is kept",
				     trace->cpu, (uint64_t)control.rtit_status);
		}
		pieces = ptw_trace_pieces(&control, trace->data);
		if (!pieces.first_size && !pieces.second_size)
			continue;
		*bytes += pieces.first_size + pieces.second_size;
		if (ptw_recording_add_trace(s->writer, trace->cpu, pieces.first, pieces.first_size,
					    pieces.second, pieces.second_size, err))
			return -1;
	}
	return 0;
}

static int write_recording(struct session *s, struct ptw_error *err)
{
	struct ptw_recording_writer *writer;
	uint64_t bytes = 0;
	char number[32];

	cli_progress(VERB, "writing the recording to %s …", s->opt->output);
	if (ptw_device_trace_stop(&s->device, err))
		return -1;
	beside_round(&s->beside, true);
	if (s->beside.full)
		return ptw_error_set(err, s->beside.full_error.status, "%s", s->beside.full_error.text);
	if (ptw_recording_add_kernel(s->writer, err) || add_traces(s, &bytes, err))
		return -1;
	if (beside_report(&s->beside))
		s->damaged = true;
	for (size_t i = 0; i < s->kept_count; i++)
		if (ptw_recording_add_alarm(s->writer, &s->kept[i], err))
			return -1;
	writer = s->writer;
	s->writer = NULL;	/* finish frees it, however it ends */
	if (ptw_recording_finish(writer, err))
		return -1;
	cli_progress(VERB, "%s bytes of trace written", ptw_commas(bytes, number, sizeof(number)));
	return 0;
}

/* How far behind the access the freeze came; the line is printed without when the trace doesn't tell. */
static void print_pending_trace_line(struct session *s, bool recorded)
{
	const struct ptw_alarm *alarm;
	struct ptw_recording *recording;
	struct ptw_alarm_point point;
	struct ptw_error err;
	int64_t after = -1;

	if (s->pending < 0)
		return;
	alarm = &s->kept[s->pending];
	if (!s->opt->json && recorded) {
		recording = ptw_recording_open(s->opt->output, &err);
		if (!recording)
			cli_error(VERB, &err);
		memset(&point, 0, sizeof(point));
		if (recording && !ptw_alarm_point_find(recording, alarm, &point, &err) && point.found)
			after = point.insns_after;
		ptw_recording_close(recording);
	}
	print_trace_line(s, alarm, after);
	s->pending = -1;
}

/* Hits that were no alarms: whoever set conditions wants to know that there were any. */
static const char *let_pass(struct session *s, char *buf, size_t size)
{
	struct ptwatch_watch_stat stat;
	uint64_t filtered = 0;
	char number[32];

	buf[0] = '\0';
	for (unsigned int i = 0; i < s->opt->targets; i++)
		if (!ptw_device_watch_stat(&s->device, s->id[i], &stat, NULL))
			filtered += stat.filtered;
	if (filtered)
		snprintf(buf, size, " (%s hit%s did not meet the conditions)", ptw_commas(filtered, number, sizeof(number)),
			 filtered == 1 ? "" : "s");
	return buf;
}

/* Without an alarm the answer is "nobody", which is a failure as for grep(1). */
static int no_alarm(struct session *s, struct ptw_error *err)
{
	const char *what = s->opt->targets == 1 ? s->opt->target[0].text : "any of the targets";
	char passed[96];

	let_pass(s, passed, sizeof(passed));
	if (s->command.signal)
		return ptw_error_set(err, PTW_EXIT_FAILED, "interrupted; nothing had touched %s%s", what, passed);
	if (s->command.ended)
		return ptw_error_set(err, PTW_EXIT_FAILED, "%s ended; nothing had touched %s%s", s->opt->command[0], what, passed);
	if (s->owner_ended)
		return ptw_error_set(err, PTW_EXIT_FAILED, "process %d ended; nothing had touched %s%s", s->owner_ended, what, passed);
	if (s->all_ended)
		return ptw_error_set(err, PTW_EXIT_FAILED, "disarmed; nothing had touched %s%s", what, passed);
	return ptw_error_set(err, PTW_EXIT_FAILED, "no hit in time; nothing touched %s%s", what, passed);
}

static int conclude(struct session *s, struct ptw_error *err)
{
	report_losses(s);
	if (!s->alarms)
		return no_alarm(s, err);
	if (!(s->opt->actions & TRACE_ACTIONS))
		return 0;
	if (s->opt->actions & PTWATCH_ACTION_FREEZE && !s->frozen)
		return ptw_error_set(err, PTW_EXIT_FAILED,
				     "no trace was frozen, so there is no recording; trace every CPU (no -C)");
	if (write_recording(s, err)) {
		print_pending_trace_line(s, false);
		return -1;
	}
	print_pending_trace_line(s, true);
	fprintf(stderr, "read it: ptwatch calls -i %s; ptwatch insns -i %s --tail 30\n", s->opt->output, s->opt->output);
	return 0;
}

static void close_session(struct session *s)
{
	if (s->writer)
		ptw_recording_abort(s->writer);
	/* The trace ends first: closing the events changes the kernel's code. */
	ptw_device_close(&s->device);
	beside_close(&s->beside);
	ptw_alarm_listener_close(s->listener);
	alarm_printer_release(&s->printer);
	for (unsigned int i = 0; i < MAX_TARGETS; i++)
		if (s->process[i] >= 0)
			close(s->process[i]);
	if (s->command.signals >= 0)
		close(s->command.signals);
	free(s->kept);
}

static int check_streams(struct ptw_error *err)
{
	int fd;

	if (cli_stdout_closed(err))
		return -1;
	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
	return 0;
}

static int run(int argc, char **argv)
{
	struct watch_options opt;
	struct session s = { .opt = &opt, .device.fd = -1, .command = CLI_COMMAND_INIT(VERB), .pending = -1 };
	struct ptw_error err;
	int status = watch_options_parse(&opt, argc, argv);
	int ret;

	if (status >= 0)
		goto out;
	s.command.argv = opt.command;
	for (unsigned int i = 0; i < MAX_TARGETS; i++)
		s.process[i] = -1;
	/* Before anything is opened, which would take the place of a stdout or stderr that is closed. */
	ret = check_streams(&err);
	if (!ret)
		ret = resolve_targets(&s, &opt, &err);
	/* From here to the end signals are read where it is safe to stop. */
	if (!ret)
		ret = cli_signals_block(&s.command, &err);
	if (!ret && opt.actions & TRACE_ACTIONS)
		ret = start_trace(&s, &err);
	if (!ret && !opt.persistent) {
		s.listener = ptw_alarm_listener_open(&err);
		ret = s.listener ? 0 : -1;
	}
	if (!ret)
		ret = arm(&s, &err);
	if (!ret && opt.command)
		ret = cli_command_prepare(&s.command, &err) || cli_command_go(&s.command, &err) ? -1 : 0;
	if (!ret && !opt.persistent)
		ret = wait_for_alarms(&s, &err) ? -1 : conclude(&s, &err);
	status = ret ? cli_error(VERB, &err) : cli_flush(VERB);
	if (status == PTW_EXIT_OK && s.damaged)
		status = PTW_EXIT_GAPS;
	/* Disarmed before the command is waited for: it shall not run slower than it must. */
	ptw_device_close(&s.device);
	/* After an alarm it goes on, as it would without us; after a signal or the timeout it ends with us. */
	cli_command_end(&s.command, !s.alarms);
	close_session(&s);
out:
	watch_options_free(&opt);
	return status;
}

const struct ptw_verb verb_watch = {
	.name = VERB,
	.summary = "who touches this memory or reaches this code, and by what path",
	.run = run,
};
