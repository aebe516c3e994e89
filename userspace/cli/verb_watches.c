// SPDX-License-Identifier: BSD-2-Clause
/*
 * ptwatch watches: the watches of everyone with their counts, and with --follow their alarms, those first
 * that the module kept of persistent watches. ptwatch unwatch: end some.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include <json-c/json.h>

#include "cli/alarm_printer.h"
#include "cli/output.h"
#include "cli/verb.h"
#include "common/number.h"
#include "control/alarm_listener.h"
#include "control/device.h"
#include "control/machine.h"
#include "symbols/symbols.h"

#define VERB "watches"
#define NS_PER_SEC 1000000000ULL

static const char *const access_name[] = {
	[PTWATCH_ACCESS_W] = "w", [PTWATCH_ACCESS_RW] = "rw", [PTWATCH_ACCESS_X] = "x",
};

static const char *const state_name[] = {
	[PTWATCH_WATCH_ARMED] = "armed", [PTWATCH_WATCH_WAITING] = "waiting", [PTWATCH_WATCH_DONE] = "done",
	[PTWATCH_WATCH_STORM] = "storm", [PTWATCH_WATCH_GONE] = "gone",
};

#define NAME_OF(names, value) ((value) < sizeof(names) / sizeof(names[0]) && names[value] ? names[value] : "?")

/* ---- the list ---- */

static void print_text(const struct ptwatch_watch_entry *entry, const struct ptwatch_watch_stat *stat)
{
	char place[300], owner[64], number[5][32];

	if (entry->flags & PTWATCH_WATCH_PERSISTENT)
		snprintf(owner, sizeof(owner), "persistent");
	else if (entry->owner_tgid)
		snprintf(owner, sizeof(owner), "pid %u (%.15s)", entry->owner_tgid, entry->owner_comm);
	else
		snprintf(owner, sizeof(owner), "%.15s", *entry->owner_comm ? entry->owner_comm : "-");
	for (char *c = owner; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?';
	printf("%4u  %-8s %-36s %-24s hits %s = alarms %s + filtered %s + over the rate %s + late %s", entry->id,
	       NAME_OF(state_name, stat->state), ptw_watch_place(entry, place, sizeof(place)), owner,
	       ptw_commas(stat->hits, number[0], 32), ptw_commas(stat->alarms, number[1], 32),
	       ptw_commas(stat->filtered, number[2], 32), ptw_commas(stat->rate_limited, number[3], 32),
	       ptw_commas(stat->ignored, number[4], 32));
	printf(" + dropped %s\n", ptw_commas(stat->dropped, number[0], 32));
}

static void add_text(struct json_object *to, const char *key, const char *text)
{
	json_object_object_add(to, key, json_object_new_string(text));
}

static void add_number(struct json_object *to, const char *key, uint64_t number)
{
	json_object_object_add(to, key, json_object_new_uint64(number));
}

static void print_json(const struct ptwatch_watch_entry *entry, const struct ptwatch_watch_stat *stat)
{
	static const char *const actions[] = { "log", "event", "freeze", "freeze_all", "start", "stop", "panic" };
	struct json_object *o = json_object_new_object(), *list = json_object_new_array();
	char text[300];

	add_number(o, "watch", entry->id);
	add_text(o, "state", NAME_OF(state_name, stat->state));
	add_text(o, "target", ptw_watch_place(entry, text, sizeof(text)));
	if (*entry->label)
		add_text(o, "label", entry->label);
	snprintf(text, sizeof(text), "0x%016" PRIx64, (uint64_t)entry->address);
	add_text(o, "address", text);
	add_number(o, "len", entry->len);
	add_text(o, "access", NAME_OF(access_name, entry->access));
	json_object_object_add(o, "percpu", json_object_new_boolean(entry->flags & PTWATCH_WATCH_PERCPU));
	json_object_object_add(o, "persistent", json_object_new_boolean(entry->flags & PTWATCH_WATCH_PERSISTENT));
	if (entry->flags & PTWATCH_WATCH_WAIT_MODULE)
		add_text(o, "module", entry->module);
	if (entry->flags & PTWATCH_WATCH_USER)
		add_number(o, "tgid", entry->tgid);
	for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++)
		if (entry->actions & 1U << i)
			json_object_array_add(list, json_object_new_string(actions[i]));
	json_object_object_add(o, "actions", list);
	add_number(o, "max_hits", entry->max_hits);
	add_number(o, "max_rate", entry->max_rate);
	add_number(o, "owner_tgid", entry->owner_tgid);
	add_text(o, "owner_comm", entry->owner_comm);
	add_number(o, entry->flags & PTWATCH_WATCH_USER ? "armed_threads" : "armed_cpus", stat->armed_cpus);
	add_number(o, "hits", stat->hits);
	add_number(o, "alarms", stat->alarms);
	add_number(o, "filtered", stat->filtered);
	add_number(o, "rate_limited", stat->rate_limited);
	add_number(o, "ignored", stat->ignored);
	add_number(o, "dropped", stat->dropped);
	add_number(o, "missed", stat->missed);
	puts(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(o);
}

static int list(struct ptw_device *device, bool json, struct ptw_error *err)
{
	struct ptwatch_watch_entry entry;
	struct ptwatch_watch_stat stat;
	uint32_t from = 0;
	bool any = false;
	int got;

	while ((got = ptw_device_watch_next(device, from, &entry, &stat, err)) > 0) {
		any = true;
		if (json)
			print_json(&entry, &stat);
		else
			print_text(&entry, &stat);
		if (entry.id == UINT32_MAX)
			break;
		from = entry.id + 1;
	}
	if (!got && !any && !json)
		fprintf(stderr, "no watch is armed; ptwatch watch --persistent arms one that stays\n");
	return got < 0 ? -1 : 0;
}

/* ---- --follow ---- */

struct follow {
	struct alarm_printer printer;
	uint64_t count;		/* 0: until something else ends it */
	uint64_t alarms;
};

static bool wants_more(const struct follow *follow)
{
	return !cli_sync() && (!follow->count || follow->alarms < follow->count);
}

static void on_alarm(const struct ptw_alarm *alarm, void *arg)
{
	struct follow *follow = arg;

	if (!wants_more(follow))
		return;
	follow->alarms++;
	alarm_printer_print(&follow->printer, alarm);
}

static int watch_signals(struct ptw_error *err)
{
	sigset_t set;
	int fd;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	signal(SIGPIPE, SIG_IGN);
	sigprocmask(SIG_BLOCK, &set, NULL);
	fd = signalfd(-1, &set, SFD_CLOEXEC);
	if (fd < 0)
		return ptw_error_set(err, PTW_EXIT_FAILED, "cannot create a signal file: %s", strerror(errno));
	return fd;
}

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * NS_PER_SEC + time.tv_nsec;
}

static int follow_alarms(struct follow *follow, uint64_t timeout, struct ptw_error *err)
{
	struct ptw_alarm_listener *listener = ptw_alarm_listener_open(err);
	uint64_t deadline = timeout ? now() + timeout : 0, time, lost;
	struct pollfd fds[2] = { { .events = POLLIN }, { .events = POLLIN } };
	int signals = listener ? watch_signals(err) : -1, ret = -1;

	if (signals < 0)
		goto out;
	/* Joined first, asked then: none falls between. */
	if (ptw_alarm_listener_backlog(listener, on_alarm, follow, err))
		goto out;
	fds[0].fd = ptw_alarm_listener_fd(listener);
	fds[1].fd = signals;
	while (wants_more(follow) && !fds[1].revents) {
		int wait = -1;

		if (deadline) {
			time = now();
			if (time >= deadline)
				break;
			time = (deadline - time) / 1000000 + 1;
			wait = time > 3600000 ? 3600000 : time;
		}
		if (poll(fds, 2, wait) < 0 && errno != EINTR) {
			ptw_error_set(err, PTW_EXIT_FAILED, "cannot wait for alarms: %s", strerror(errno));
			goto out;
		}
		if (ptw_alarm_listener_receive(listener, on_alarm, follow, err))
			goto out;
	}
	if (ptw_alarm_listener_overruns(listener, &lost))
		cli_progress(VERB, "%" PRIu64 " alarms were lost, as they came faster than they were read", lost);
	ret = follow->alarms ? 0 : ptw_error_set(err, PTW_EXIT_FAILED, "there was no alarm");
out:
	if (signals >= 0)
		close(signals);
	ptw_alarm_listener_close(listener);
	return ret;
}

/* ---- the verbs ---- */

static void print_help(void)
{
	fputs("The watches that are armed, of everyone, with their counts; or their alarms.\n\n"
	      "Usage: ptwatch watches [OPTION]…\n\n"
	      "      --follow        print alarms as they come, of every watch; first those that were kept: the last 256 of\n"
	      "                      persistent watches (ptwatch watch --persistent)\n"
	      "  -n, --count N       with --follow: end after N alarms\n"
	      "      --timeout TIME  with --follow: end after TIME: 10 or 10s, 500ms, 2m\n"
	      "      --json          one JSON object a line\n"
	      "  -h, --help          this text\n\n"
	      "Of each watch: its number (for ptwatch unwatch), state, target, who armed it, and what became of its hits.\n"
	      "State: armed; waiting, for its module; done, had its --count; storm, hit too often; gone, with its module or\n"
	      "process. With --follow, exit status 1 when there was no alarm.\n\n"
	      "  ptwatch watches\n"
	      "  ptwatch watches --follow --json\n", stdout);
}

static const struct option options[] = {
	{ "follow", no_argument, NULL, 'f' },
	{ "count", required_argument, NULL, 'n' },
	{ "timeout", required_argument, NULL, 't' },
	{ "json", no_argument, NULL, 'j' },
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

static int run(int argc, char **argv)
{
	struct follow follow = { .count = 0 };
	struct ptw_device device = { .fd = -1 };
	bool following = false;
	uint64_t timeout = 0;
	struct ptw_error err;
	int option, ret;

	opterr = 0;
	while ((option = getopt_long(argc, argv, ":n:h", options, NULL)) != -1) {
		switch (option) {
		case 'f':
			following = true;
			break;
		case 'n':
			if (ptw_parse_uint(optarg, 1, UINT32_MAX, &follow.count))
				return cli_usage(VERB, "--count %s is not a number of alarms, from 1", cli_shown(optarg));
			break;
		case 't':
			if (ptw_parse_duration(optarg, &timeout) || !timeout)
				return cli_usage(VERB, "--timeout %s is not a time such as 10, 1.5s, 500ms or 2m", cli_shown(optarg));
			break;
		case 'j':
			follow.printer.json = true;
			break;
		case 'h':
			print_help();
			return cli_flush(VERB);
		default:
			return cli_bad_option(VERB, option, argv, options);
		}
	}
	if (optind < argc)
		return cli_usage(VERB, "unexpected argument '%s'; arm one with ptwatch watch", argv[optind]);
	if (!following && (follow.count || timeout))
		return cli_usage(VERB, "--count and --timeout are about alarms; add --follow to see them");
	ret = ptw_device_open(&device, &err);
	if (!ret && !following)
		ret = list(&device, follow.printer.json, &err);
	if (!ret && following) {
		/* Without names there are still addresses. */
		ptw_perf_time(&follow.printer.clock);
		follow.printer.modules = alarm_printer_modules();
		follow.printer.symbols = ptw_symbols_new();
		if (follow.printer.symbols && ptw_symbols_load_kallsyms(follow.printer.symbols, "/proc/kallsyms", NULL)) {
			ptw_symbols_free(follow.printer.symbols);
			follow.printer.symbols = NULL;
		}
		ret = follow_alarms(&follow, timeout, &err);
	}
	alarm_printer_release(&follow.printer);
	ptw_device_close(&device);
	return ret ? cli_error(VERB, &err) : cli_flush(VERB);
}

const struct ptw_verb verb_watches = {
	.name = VERB,
	.summary = "the watches that are armed, with their counts, and their alarms",
	.run = run,
};

/* ---- unwatch ---- */

#define UNWATCH "unwatch"

static void print_unwatch_help(void)
{
	fputs("End watches.\n\n"
	      "Usage: ptwatch unwatch WATCH…\n\n"
	      "WATCH is a number or target as `ptwatch watches` shows it (kv_cache_meta:8:w), its symbol alone\n"
	      "(kv_cache_meta, then every watch on it), or 'all'.\n\n"
	      "  -h, --help          this text\n\n"
	      "  ptwatch unwatch 3\n"
	      "  ptwatch unwatch all\n", stdout);
}

/* "kv_cache_meta", "kvdemo:kv_cache_meta", "kv_cache_meta+0x8", or the whole target. */
static bool is_called(const struct ptwatch_watch_entry *entry, const char *name)
{
	char place[300], *colon;

	ptw_watch_place(entry, place, sizeof(place));
	if (!strcmp(place, name) || !strcmp(entry->label, name))
		return true;
	/* Without ":8:w", or ":x". */
	colon = strrchr(place, ':');
	*colon = '\0';
	if (entry->access != PTWATCH_ACCESS_X)
		*strrchr(place, ':') = '\0';
	if (!strcmp(place, name))
		return true;
	colon = strchr(place, ':');
	return colon && !strcmp(colon + 1, name);
}

static int remove_matching(struct ptw_device *device, const char *name, struct ptw_error *err)
{
	bool all = !strcmp(name, "all");
	struct ptwatch_watch_entry entry;
	struct ptwatch_watch_stat stat;
	unsigned int removed = 0;
	uint32_t from = 0;
	uint64_t number;
	int got;

	if (!ptw_parse_uint(name, 0, UINT32_MAX, &number)) {
		if (ptw_device_watch_remove(device, number, err))
			return -1;
		return 0;
	}
	while ((got = ptw_device_watch_next(device, from, &entry, &stat, err)) > 0) {
		if (all || is_called(&entry, name)) {
			if (ptw_device_watch_remove(device, entry.id, err))
				return -1;
			removed++;
		}
		if (entry.id == UINT32_MAX)
			break;
		from = entry.id + 1;
	}
	if (got < 0)
		return -1;
	if (!removed && !all)
		return ptw_error_set(err, PTW_EXIT_FAILED, "there is no watch '%s'; `ptwatch watches` lists them", name);
	return 0;
}

static int run_unwatch(int argc, char **argv)
{
	static const struct option unwatch_options[] = {
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	struct ptw_device device = { .fd = -1 };
	int option, status = PTW_EXIT_OK;
	struct ptw_error err;

	opterr = 0;
	while ((option = getopt_long(argc, argv, ":h", unwatch_options, NULL)) != -1) {
		if (option != 'h')
			return cli_bad_option(UNWATCH, option, argv, unwatch_options);
		print_unwatch_help();
		return cli_flush(UNWATCH);
	}
	if (optind == argc)
		return cli_usage(UNWATCH, "which watch? `ptwatch watches` lists them; write its number, its target or 'all'");
	if (ptw_device_open(&device, &err))
		status = cli_error(UNWATCH, &err);
	for (; status == PTW_EXIT_OK && optind < argc; optind++)
		if (remove_matching(&device, argv[optind], &err))
			status = cli_error(UNWATCH, &err);
	ptw_device_close(&device);
	return status;
}

const struct ptw_verb verb_unwatch = {
	.name = UNWATCH,
	.summary = "end watches",
	.run = run_unwatch,
};
