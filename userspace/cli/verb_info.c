// SPDX-License-Identifier: BSD-2-Clause
/* ptwatch info: what this CPU and kernel can do, and who holds Intel PT. */
#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "cli/output.h"
#include "cli/verb.h"
#include "common/number.h"
#include "common/version.h"
#include "control/device.h"
#include "control/holders.h"
#include "control/machine.h"

/* Everything there is to tell, collected before anything is printed. */
struct facts {
	struct ptwatch_info info;	/* from the module, else from CPUID */
	bool module_loaded;
	bool module_answers;
	struct ptw_error module_error;
	char module_version[64];
	char cpu_name[128];
	char vendor[16];
	struct utsname kernel;
	enum ptw_lockdown lockdown;
	int pmu_type;
	enum { HELD_UNKNOWN, HELD_NO, HELD_YES } held;
	char held_cpus[256];
	char holders[512];
};

static void read_cpu_name(struct facts *facts)
{
	FILE *file = fopen("/proc/cpuinfo", "re");
	char line[4096], *value;

	if (!file)
		return;
	while (fgets(line, sizeof(line), file) && !facts->cpu_name[0]) {
		value = strchr(line, ':');
		if (!value)
			continue;
		value += strspn(value, ": \t");
		value[strcspn(value, "\n")] = '\0';
		if (!strncmp(line, "vendor_id", 9))
			snprintf(facts->vendor, sizeof(facts->vendor), "%.15s", value);
		else if (!strncmp(line, "model name", 10))
			snprintf(facts->cpu_name, sizeof(facts->cpu_name), "%.127s", value);
	}
	fclose(file);
}

/* "0-3,8" of a bitmap. */
static void format_cpus(const uint8_t *map, size_t size, char *buf, size_t room)
{
	size_t used = 0;

	buf[0] = '\0';
	for (size_t cpu = 0; cpu < size * 8; cpu++) {
		size_t first = cpu;
		int len;

		if (!(map[cpu / 8] >> cpu % 8 & 1))
			continue;
		while (cpu + 1 < size * 8 && map[(cpu + 1) / 8] >> (cpu + 1) % 8 & 1)
			cpu++;
		len = snprintf(buf + used, room - used, first == cpu ? "%s%zu" : "%s%zu-%zu", used ? "," : "", first, cpu);
		if (len < 0 || used + len >= room) {
			buf[used] = '\0';
			return;
		}
		used += len;
	}
}

/* Ask for Intel PT on every CPU the way perf would: the kernel refuses where someone has it. */
static void probe_holders(struct facts *facts)
{
	uint8_t *online, *busy;
	size_t size;

	facts->held = HELD_UNKNOWN;
	if (facts->pmu_type < 0 || ptw_online_cpus(&online, &size) < 0)
		return;
	busy = calloc(1, size);
	for (size_t cpu = 0; busy && cpu < size * 8; cpu++) {
		int ret;

		if (!(online[cpu / 8] >> cpu % 8 & 1))
			continue;
		ret = ptw_pt_probe_perf(facts->pmu_type, cpu);
		if (ret == -EBUSY) {
			busy[cpu / 8] |= 1U << cpu % 8;
			facts->held = HELD_YES;
		} else if (ret && facts->held != HELD_YES) {
			break;
		} else if (facts->held != HELD_YES) {
			facts->held = HELD_NO;
		}
	}
	if (facts->held == HELD_YES) {
		format_cpus(busy, size, facts->held_cpus, sizeof(facts->held_cpus));
		ptw_holders_text(PTW_HOLDER_PERF | PTW_HOLDER_PTWATCH, facts->holders,
				 sizeof(facts->holders));
	}
	free(busy);
	free(online);
}

static void collect(struct facts *facts)
{
	struct ptw_device device;

	memset(facts, 0, sizeof(*facts));
	read_cpu_name(facts);
	uname(&facts->kernel);
	facts->lockdown = ptw_lockdown();
	facts->pmu_type = ptw_pt_pmu_type();
	ptw_machine_cpuid(&facts->info);
	if (!ptw_device_open(&device, &facts->module_error)) {
		facts->info = device.info;
		facts->module_answers = true;
	}
	ptw_device_close(&device);
	facts->module_loaded = facts->module_answers || !access("/sys/module/ptwatch", F_OK);
	ptw_read_line("/sys/module/ptwatch/version", facts->module_version, sizeof(facts->module_version));
	probe_holders(facts);
}

/* One line with the reason and the remedy, and the exit status; text is "" when all is well. */
static enum ptw_exit judge(const struct facts *facts, struct ptw_error *err)
{
	bool pt = facts->info.flags & PTWATCH_INFO_PT;

	err->text[0] = '\0';
	err->status = PTW_EXIT_OK;
	if (!pt && !facts->module_answers && facts->module_error.status == PTW_EXIT_UNSUPPORTED)
		ptw_error_set(err, PTW_EXIT_UNSUPPORTED,
			      "%s, and the %s; `make demo` shows it all in a VM", ptw_no_pt(),
			      facts->module_error.text);
	else if (!pt)
		ptw_error_set(err, PTW_EXIT_UNSUPPORTED,
			      "%s; watch without --freeze works here, `make demo` shows the rest", ptw_no_pt());
	else if (!facts->module_answers)
		*err = facts->module_error;
	else if (facts->info.flags & PTWATCH_INFO_LOCKDOWN)
		ptw_error_set(err, PTW_EXIT_UNSUPPORTED,
			      "kernel lockdown (confidentiality) forbids watching and tracing the kernel; boot without lockdown=confidentiality");
	else if (!(facts->info.flags & PTWATCH_INFO_TRACEABLE))
		ptw_error_set(err, PTW_EXIT_UNSUPPORTED,
			      "Intel PT of this CPU lacks ToPA tables with many regions; watch without --freeze works here");
	return err->status;
}

static const char *const mode_names[] = { "ring", "stream", "banks" };

/* How one process with all its threads would be told from others. */
static const char *process_filter(const struct ptwatch_info *info)
{
	if (!(info->flags & PTWATCH_INFO_CR3_FILTER))
		return "switch";
	return info->flags & PTWATCH_INFO_PTI ? "cr3-user-or-kernel" : "cr3";
}

/* ---- for programs ---- */

static struct json_object *bits_json(uint32_t bits)
{
	struct json_object *array = json_object_new_array();

	for (int i = 0; i < 32; i++)
		if (bits >> i & 1)
			json_object_array_add(array, json_object_new_int(i));
	return array;
}

static struct json_object *hex_json(uint64_t value)
{
	char text[32];

	snprintf(text, sizeof(text), "0x%" PRIx64, value);
	return json_object_new_string(text);
}

static struct json_object *leaf_json(const uint32_t *leaf)
{
	struct json_object *array = json_object_new_array();

	for (int i = 0; i < 4; i++)
		json_object_array_add(array, hex_json(leaf[i]));
	return array;
}

static struct json_object *modes_json(const struct ptwatch_info *info)
{
	struct json_object *array = json_object_new_array();

	for (size_t i = 0; i < sizeof(mode_names) / sizeof(mode_names[0]); i++)
		if (info->modes >> i & 1)
			json_object_array_add(array, json_object_new_string(mode_names[i]));
	return array;
}

/* Every field of IA32_RTIT_CTL that a session may set, with the values this CPU takes */
static struct json_object *controls_json(const struct ptwatch_info *info)
{
	struct json_object *controls = json_object_new_object();

	for (size_t i = 0; i < ptw_rtit_field_count; i++) {
		uint32_t values = ptw_rtit_values(info, &ptw_rtit_fields[i]);

		/* 0 is what a field has that can't be set. */
		json_object_object_add(controls, ptw_rtit_fields[i].name, bits_json(values ? values : 1));
	}
	return controls;
}

static void print_json(const struct facts *facts, const struct ptw_error *err)
{
	static const char *const held[] = { "unknown", "free", "held" };
	const struct ptwatch_info *info = &facts->info;
	struct json_object *top = json_object_new_object(), *part;

	json_object_object_add(top, "version", json_object_new_string(PTWATCH_VERSION));
	json_object_object_add(top, "can_trace", json_object_new_boolean(err->status == PTW_EXIT_OK));
	if (err->text[0])
		json_object_object_add(top, "reason", json_object_new_string(err->text));

	part = json_object_new_object();
	json_object_object_add(part, "name", json_object_new_string(facts->cpu_name));
	json_object_object_add(part, "vendor", json_object_new_string(facts->vendor));
	json_object_object_add(part, "family", json_object_new_int64(info->family));
	json_object_object_add(part, "model", json_object_new_int64(info->model));
	json_object_object_add(part, "stepping", json_object_new_int64(info->stepping));
	json_object_object_add(part, "tsc_khz", json_object_new_int64(info->tsc_khz));
	json_object_object_add(part, "max_nonturbo_ratio", json_object_new_int64(info->max_nonturbo_ratio));
	json_object_object_add(part, "cpuid_15", leaf_json(info->cpuid_15));
	json_object_object_add(part, "breakpoint_slots", json_object_new_int64(info->breakpoint_slots));
	json_object_object_add(top, "cpu", part);

	part = json_object_new_object();
	json_object_object_add(part, "release", json_object_new_string(facts->kernel.release));
	json_object_object_add(part, "lockdown", json_object_new_string(ptw_lockdown_name(facts->lockdown)));
	if (facts->pmu_type >= 0)
		json_object_object_add(part, "pt_pmu_type", json_object_new_int(facts->pmu_type));
	json_object_object_add(top, "kernel", part);

	part = json_object_new_object();
	json_object_object_add(part, "loaded", json_object_new_boolean(facts->module_loaded));
	if (facts->module_version[0])
		json_object_object_add(part, "version", json_object_new_string(facts->module_version));
	if (facts->module_answers)
		json_object_object_add(part, "abi", json_object_new_int64(info->abi));
	json_object_object_add(top, "module", part);

	part = json_object_new_object();
	json_object_object_add(part, "present", json_object_new_boolean(info->flags & PTWATCH_INFO_PT));
	json_object_object_add(part, "traceable", json_object_new_boolean(info->flags & PTWATCH_INFO_TRACEABLE));
	json_object_object_add(part, "state", json_object_new_string(held[facts->held]));
	if (facts->held == HELD_YES) {
		json_object_object_add(part, "held_cpus", json_object_new_string(facts->held_cpus));
		json_object_object_add(part, "holders", json_object_new_string(facts->holders));
	}
	if (info->flags & PTWATCH_INFO_PT) {
		struct json_object *caps = json_object_new_object();

		for (size_t i = 0; i < ptw_pt_capability_count; i++) {
			const struct ptw_pt_capability *cap = &ptw_pt_capabilities[i];

			json_object_object_add(caps, cap->name,
					       json_object_new_boolean(ptw_pt_has(info, cap)));
		}
		json_object_object_add(part, "capabilities", caps);
		json_object_object_add(part, "address_ranges", json_object_new_int64(info->address_ranges));
		json_object_object_add(part, "mtc_periods", bits_json(info->mtc_periods));
		json_object_object_add(part, "cyc_thresholds", bits_json(info->cyc_thresholds));
		json_object_object_add(part, "psb_periods", bits_json(info->psb_periods));
		json_object_object_add(part, "rtit_ctl", hex_json(info->rtit_ctl));
		if (facts->module_answers) {
			json_object_object_add(part, "controls", controls_json(info));
			json_object_object_add(part, "modes", modes_json(info));
			json_object_object_add(part, "process_filter", json_object_new_string(process_filter(info)));
			json_object_object_add(part, "single_region",
					       json_object_new_boolean(info->flags & PTWATCH_INFO_SINGLE_REGION));
		}
		json_object_object_add(part, "max_buffer_size", json_object_new_int64(info->max_buffer_size));
		json_object_object_add(part, "vmx_conflict",
				       json_object_new_boolean(info->flags & PTWATCH_INFO_VMX_CONFLICT));
		json_object_object_add(part, "cpuid_14_0", leaf_json(info->cpuid_14_0));
		json_object_object_add(part, "cpuid_14_1", leaf_json(info->cpuid_14_1));
	}
	json_object_object_add(top, "pt", part);

	puts(json_object_to_json_string_ext(top, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(top);
}

/* ---- for people ---- */

static void print_row(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void print_row(const char *name, const char *format, ...)
{
	va_list args;

	printf("%-18s", name);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
}

/* The values a field of IA32_RTIT_CTL may have, with what they mean where that isn't the number itself. */
static void print_field(const char *name, uint32_t bits,
			void (*meaning)(unsigned int n, char *buf, size_t size))
{
	const char *separator = "";
	char text[32];

	printf("%-18s", name);
	if (!bits)
		fputs("-", stdout);
	for (unsigned int i = 0; i < 32; i++) {
		if (!(bits >> i & 1))
			continue;
		meaning(i, text, sizeof(text));
		printf("%s%u", separator, i);
		if (text[0])
			printf(" (%s)", text);
		separator = text[0] ? ", " : ",";
	}
	putchar('\n');
}

static void mtc_meaning(unsigned int n, char *buf, size_t size)
{
	snprintf(buf, size, "%u", 1U << n);
}

/* 0 is every time something is to be told. */
static void cyc_meaning(unsigned int n, char *buf, size_t size)
{
	snprintf(buf, size, "%u", n ? 1U << (n - 1) : 0);
}

static void psb_meaning(unsigned int n, char *buf, size_t size)
{
	ptw_bytes(2048ULL << n, buf, size);
}

/* What the module takes for each field, in the order of people's interest */
static void print_controls(const struct ptwatch_info *info)
{
	for (size_t i = 0; i < ptw_rtit_field_count; i++) {
		const struct ptw_rtit_field *field = &ptw_rtit_fields[i];
		uint32_t values = ptw_rtit_values(info, field);

		switch (field->mask) {
		case PTWATCH_RTIT_CTL_MTCFREQ:
		case PTWATCH_RTIT_CTL_CYCTHRESH:
		case PTWATCH_RTIT_CTL_PSBFREQ:
			continue;
		}
		print_row(field->name, "%-6s%s", values == 3 ? "0,1" : values ? "1" : "0", field->meaning);
	}
}

static void print_modes(const struct ptwatch_info *info)
{
	const char *separator = "";

	printf("%-18s", "Buffers");
	for (size_t i = 0; i < sizeof(mode_names) / sizeof(mode_names[0]); i++) {
		if (!(info->modes >> i & 1))
			continue;
		printf("%s%s", separator, mode_names[i]);
		separator = ", ";
	}
	printf("%s\n", info->flags & PTWATCH_INFO_SINGLE_REGION ? " (ToPA of one entry: one region)" : "");
	if (!(info->flags & PTWATCH_INFO_CR3_FILTER))
		print_row("One process", "switched with the task: this CPU has no CR3 filter");
	else if (info->flags & PTWATCH_INFO_PTI)
		print_row("One process", "by the CR3 filter; user code and kernel together are switched with the task (PTI is on)");
	else
		print_row("One process", "by the CR3 filter");
}

static void print_holders(const struct facts *facts)
{
	switch (facts->held) {
	case HELD_NO:
		print_row("Held by", "nobody");
		break;
	case HELD_YES:
		print_row("Held by", "%s, on CPU %s", facts->holders[0] ? facts->holders :
			  "someone who is no process to be seen", facts->held_cpus);
		break;
	case HELD_UNKNOWN:
		if (facts->pmu_type < 0)
			print_row("Held by", "not known: this kernel has no intel_pt PMU");
		else
			print_row("Held by", "not known: asking needs root");
		break;
	}
}

static void print_pt(const struct facts *facts)
{
	const struct ptwatch_info *info = &facts->info;
	char text[32];

	if (!(info->flags & PTWATCH_INFO_PT)) {
		print_row("Intel PT", "no");
		return;
	}
	print_row("Intel PT", "yes%s", info->flags & PTWATCH_INFO_TRACEABLE ? "" :
		  ", but without ToPA tables of many regions");
	if (facts->pmu_type >= 0)
		print_row("perf PMU", "intel_pt, type %d", facts->pmu_type);
	else
		print_row("perf PMU", "none");
	print_holders(facts);
	if (info->max_buffer_size)
		print_row("Largest buffer", "%s a CPU", ptw_bytes(info->max_buffer_size, text, sizeof(text)));
	if (info->flags & PTWATCH_INFO_VMX_CONFLICT)
		print_row("Virtual machines", "this CPU cannot trace while one runs");
	if (facts->module_answers && info->modes)
		print_modes(info);
	putchar('\n');
	for (size_t i = 0; i < ptw_pt_capability_count; i++)
		print_row(ptw_pt_capabilities[i].name, "%-4s%s", ptw_pt_has(info, &ptw_pt_capabilities[i]) ? "yes" : "no",
			  ptw_pt_capabilities[i].meaning);
	print_row("address ranges", "%u", info->address_ranges);
	putchar('\n');
	if (facts->module_answers && info->rtit_ctl)
		print_controls(info);
	print_field("MTCFreq", info->mtc_periods, mtc_meaning);
	print_field("CycThresh", info->cyc_thresholds, cyc_meaning);
	print_field("PSBFreq", info->psb_periods, psb_meaning);
}

static void print_text(const struct facts *facts)
{
	const struct ptwatch_info *info = &facts->info;

	print_row("ptwatch", "%s", PTWATCH_VERSION);
	if (facts->module_answers)
		print_row("Module", "loaded%s%s, ABI %u", facts->module_version[0] ? ", version " : "",
			  facts->module_version, info->abi);
	else
		print_row("Module", "%s", facts->module_loaded ? "loaded, but can't be asked" : "not loaded");
	print_row("Kernel", "%s", facts->kernel.release);
	print_row("Lockdown", "%s", ptw_lockdown_name(facts->lockdown));
	print_row("CPU", "%s", facts->cpu_name[0] ? facts->cpu_name : "unknown");
	print_row("", "family %u, model %u (0x%x), stepping %u", info->family, info->model, info->model, info->stepping);
	if (info->tsc_khz)
		print_row("TSC", "%u.%03u MHz", info->tsc_khz / 1000, info->tsc_khz % 1000);
	print_row("Debug registers", "%u a CPU, shared with perf, gdb and ptrace", info->breakpoint_slots);
	print_pt(facts);
}

static void print_help(void)
{
	fputs("What this CPU and kernel can do, and who holds Intel PT.\n\n"
	      "Usage: ptwatch info [--json]\n\n"
	      "      --json   one JSON object\n"
	      "  -h, --help   this text\n\n"
	      "Of each field of IA32_RTIT_CTL it lists the values that this CPU takes, with what MTCFreq (crystal clocks),\n"
	      "CycThresh (cycles) and PSBFreq (bytes) make of them.\n\n"
	      "Works without the module too, from CPUID. Exit status 4, with the reason and the remedy on stderr, when this\n"
	      "machine can't trace as it is.\n", stdout);
}

static int run(int argc, char **argv)
{
	static const struct option options[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	struct facts facts;
	struct ptw_error err;
	bool json = false;
	int option;

	opterr = 0;
	while ((option = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
		switch (option) {
		case 'j':
			json = true;
			break;
		case 'h':
			print_help();
			return cli_flush("info");
		default:
			return cli_bad_option("info", option, argv, options);
		}
	}
	if (optind < argc)
		return cli_usage("info", "unexpected argument '%s'", argv[optind]);

	collect(&facts);
	judge(&facts, &err);
	if (json)
		print_json(&facts, &err);
	else
		print_text(&facts);
	if (cli_flush("info"))
		return PTW_EXIT_FAILED;
	return err.text[0] ? cli_error("info", &err) : PTW_EXIT_OK;
}

const struct ptw_verb verb_info = {
	.name = "info",
	.summary = "what this CPU and kernel can do, and who holds Intel PT",
	.run = run,
};
