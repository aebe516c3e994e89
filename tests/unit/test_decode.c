// SPDX-License-Identifier: BSD-2-Clause
/* Images as people write them, packets, and the stream of instructions, on traces written by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "decode/image.h"
#include "decode/ipt.h"
#include "decode/packets.h"
#include "flow/stream.h"

#define PSB	0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82
#define PSBEND	0x02, 0x23
#define MODE64	0x99, 0x01
#define PGE(a)	0x71, (a) & 0xff, (a) >> 8 & 0xff, (a) >> 16 & 0xff, 0, 0, 0
#define PGD	0x01
#define BAD	0x02, 0x0b

#define CODE	0x401000

static const struct ptw_pt_params params = { .family = 6, .model = 85, .stepping = 4 };

/* ---- images ---- */

static void image_parse(void **state)
{
	struct ptw_image image = { 0 };
	struct ptw_error err;

	assert_int_equal(ptw_image_parse(&image, "hello,1000,27,401000", &err), 0);
	assert_int_equal(ptw_image_parse(&image, "with,comma,0x10,0xFF,ffffffffc0a01000", &err), 0);
	assert_int_equal(image.count, 2);
	assert_string_equal(image.section[0].path, "hello");
	assert_int_equal(image.section[0].offset, 0x1000);
	assert_int_equal(image.section[0].size, 0x27);
	assert_int_equal(image.section[0].vaddr, 0x401000);
	assert_string_equal(image.section[1].path, "with,comma");
	assert_int_equal(image.section[1].size, 0xff);
	assert_true(image.section[1].vaddr == 0xffffffffc0a01000);
	ptw_image_free(&image);
	assert_int_equal(image.count, 0);
}

static void image_parse_refuses(void **state)
{
	static const struct { const char *text, *says; } bad[] = {
		{ "hello", "not FILE" }, { "hello,1,2", "not FILE" }, { "hello,1000,27,", "''" },
		{ "hello,1000,27,x", "'x'" }, { "hello,-1,27,0", "'-1'" }, { "hello,1,+2,0", "'+2'" },
		{ "hello,1, 2,0", "' 2'" }, { "hello,1,0,0", "size 0" }, { ",1,2,3", "no file name" },
		{ "hello,0,2,ffffffffffffffff", "beyond" }, { "hello,10000000000000000,2,0", "not a hex" },
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct ptw_image image = { 0 };
		struct ptw_error err;

		assert_int_equal(ptw_image_parse(&image, bad[i].text, &err), -1);
		assert_int_equal(err.status, PTW_EXIT_USAGE);
		if (!strstr(err.text, bad[i].says))
			fail_msg("%s: '%s' instead of '%s'", bad[i].text, err.text, bad[i].says);
		ptw_image_free(&image);
	}
}

static void write_file(char *path, const void *data, size_t size)
{
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, size), size);
	close(fd);
}

static void image_table(void **state)
{
	static const char text[] =
		"# file\toffset\tsize\taddress\na.out\t0\t6fc\t400000\r\n\nb c,d\t10\t20\t30";
	static const char bad[] = "a.out\t0\t6fc\t400000\na.out\t0\t6fc\n";
	char path[] = "/tmp/ptwatch-test-XXXXXX", bad_path[] = "/tmp/ptwatch-test-XXXXXX";
	struct ptw_image image = { 0 };
	struct ptw_error err;

	write_file(path, text, sizeof(text) - 1);
	assert_int_equal(ptw_image_read_table(&image, path, &err), 0);
	assert_int_equal(image.count, 2);
	assert_string_equal(image.section[1].path, "b c,d");
	assert_int_equal(image.section[0].vaddr, 0x400000);
	unlink(path);

	write_file(bad_path, bad, sizeof(bad) - 1);
	assert_int_equal(ptw_image_read_table(&image, bad_path, &err), -1);
	assert_non_null(strstr(err.text, "line 2"));
	unlink(bad_path);
	assert_int_equal(ptw_image_read_table(&image, bad_path, &err), -1);
	assert_int_equal(err.status, PTW_EXIT_FAILED);
	ptw_image_free(&image);
}

/* ---- packets ---- */

/* The packets of @data as text, "TIP.PGE 0x401000; TNT TN (2); …". */
static void packet_text(const struct ptw_pt_params *cpu, const uint8_t *data, size_t size, char *text, size_t room)
{
	struct ptw_packets *packets = ptw_packets_new(cpu, data, size, NULL);
	struct ptw_packet packet;
	enum ptw_packets_status status;
	char payload[128];
	size_t used = 0;

	assert_non_null(packets);
	text[0] = '\0';
	while ((status = ptw_packets_next(packets, &packet)) != PTW_PACKETS_END) {
		const char *name = status == PTW_PACKETS_GAP	   ? "gap"
				   : status == PTW_PACKETS_SKIPPED ? "skipped"
								   : ptw_packet_name(&packet);

		ptw_packet_payload(&packet, payload, sizeof(payload));
		if (status != PTW_PACKETS_PACKET)
			snprintf(payload, sizeof(payload), "%u", packet.size);
		used += snprintf(text + used, room - used, "%s%s%s%s", used ? "; " : "", name,
				 payload[0] ? " " : "", payload);
	}
	ptw_packets_free(packets);
}

static void assert_packets_of(const struct ptw_pt_params *cpu, const uint8_t *data, size_t size, const char *expected)
{
	char text[1024];

	packet_text(cpu, data, size, text, sizeof(text));
	assert_string_equal(text, expected);
}

static void assert_packets(const uint8_t *data, size_t size, const char *expected)
{
	assert_packets_of(&params, data, size, expected);
}

#define ASSERT_PACKETS(expected, ...)						\
	do {									\
		static const uint8_t data_[] = { __VA_ARGS__ };			\
		assert_packets(data_, sizeof(data_), expected);			\
	} while (0)

static void packets_are_named(void **state)
{
	ASSERT_PACKETS("PSB; MODE.Exec 64-bit; PSBEND; TIP.PGE 0x401000; TNT TNT (3); TIP.PGD -",
		       PSB, MODE64, PSBEND, PGE(CODE), 0x1a, PGD);
	ASSERT_PACKETS("PTW 0x04030201; PTW 0x0000000000000007 IP", 0x02, 0x12, 1, 2, 3, 4, 0x02, 0xb2, 7, 0,
		       0, 0, 0, 0, 0, 0);
	ASSERT_PACKETS("PIP CR3 0x2000 NR 1", 0x02, 0x43, 0x01, 0x02, 0, 0, 0, 0);
}

static void ips_are_decompressed(void **state)
{
	ASSERT_PACKETS(
		"PSB; FUP 0x401000; TIP 0x402345; TIP -; TIP 0x406789; TIP 0xffffffff81000000; PSB; TIP 0x1",
		PSB, 0x7d, 0x00, 0x10, 0x40, 0, 0, 0, 0x2d, 0x45, 0x23, 0x0d, 0x2d, 0x89, 0x67, 0x6d, 0, 0, 0,
		0x81, 0xff, 0xff, PSB, 0x2d, 1, 0);
}

static void packets_go_on_after_damage(void **state)
{
	ASSERT_PACKETS("PSB; gap 3; PSB; PSBEND", PSB, BAD, 0, PSB, PSBEND);
	ASSERT_PACKETS("PAD; gap 1", 0, 0x02);
	/* A ring that wrapped begins in a packet, here with the payload of a TSC: that is no damage. */
	ASSERT_PACKETS("skipped 4; PSB; PSBEND", 0x02, 0x0b, 0x02, 0x0b, PSB, PSBEND);
}

/* SKD007: OVF came instead of the rest of a CYC. All behind it have the right offsets, which END tells. */
static void packets_cut_off(void **state)
{
	static const uint8_t trace[] = { PSB, 0x47, 0x02, 0xf3, 0x59, 0x07, 0x47, 0x02, 0xf3, 0x02, 0x22, 0x80, 0x10, PSB, 0x47, 0x02 };
	static const struct ptw_pt_params skylake = { .family = 6, .model = 0x5e };
	uint64_t count[PTW_PACKET_UNKNOWN + 1] = { 0 }, bytes[PTW_PACKET_UNKNOWN + 1] = { 0 };
	struct ptw_packets *packets;
	struct ptw_packet packet;
	struct ptw_error err;

	assert_packets_of(&skylake, trace, sizeof(trace), "PSB; gap 1; OVF; MTC 0x7; gap 1; OVF; PWRE state 1 sub 0 HW; PSB; CYC 0x28");
	/* Where it is not an erratum, it is what it looks like. */
	assert_packets(trace, sizeof(trace), "PSB; CYC 0x28; CYC 0x1e; MTC 0x7; CYC 0x28; CYC 0x1e; PWRE state 1 sub 0 HW; PSB; CYC 0x28");
	packets = ptw_packets_new(&skylake, trace, sizeof(trace), &err);
	assert_int_equal(ptw_packets_next(packets, &packet), PTW_PACKETS_PACKET);
	assert_int_equal(ptw_packets_count(packets, count, bytes), 16);
	assert_int_equal(ptw_packets_next(packets, &packet), PTW_PACKETS_GAP);
	assert_int_equal(ptw_packets_count(packets, count, bytes), 17);
	assert_int_equal(ptw_packets_next(packets, &packet), PTW_PACKETS_PACKET);
	assert_int_equal(packet.type, PTW_PACKET_OVF);
	assert_int_equal(packet.offset, 17);
	assert_int_equal(ptw_packets_count(packets, count, bytes), 21);
	ptw_packets_free(packets);
}

static void packets_of_nothing(void **state)
{
	assert_packets(NULL, 0, "");
}

/* ---- the stream of instructions ---- */

static struct ptw_recorded_trace raw = { .cpu = -1, .tid = -1 };

/* @data as a recording of one trace, of code that is mapped at CODE */
static void raw_recording(struct ptw_recording *rec, const uint8_t *data, size_t size, const char *code_path,
			  size_t code_size)
{
	raw.data = data;
	raw.size = size;
	*rec = (struct ptw_recording){ .params = params, .trace = &raw, .trace_count = 1 };
	assert_int_equal(ptw_image_add(&rec->image, code_path, 0, code_size, CODE, NULL), 0);
}

static struct ptw_stream *open_insns(const struct ptw_recording *rec, unsigned int flags, struct ptw_error *err)
{
	struct ptw_stream_options options = { .order = PTW_ORDER_TRACE, .flags = PTW_STREAM_INSNS | flags, .threads = 1 };

	return ptw_stream_open(rec, &options, err);
}

static size_t run_text(const struct ptw_flow *run, const uint8_t *code_bytes, char *text, size_t room)
{
	const uint8_t *code = run->code;
	uint64_t ip = run->from, last = 0;
	size_t used = 0;

	for (uint64_t i = 0; i < run->value; i++) {
		used += snprintf(text + used, room - used, "%sinsn %llx", i ? "; " : "", (unsigned long long)ip);
		assert_memory_equal(code + 1, code_bytes + (ip - CODE), *code);
		last = ip;
		ip += *code;
		code += 1 + *code;
	}
	assert_true(last == run->to);
	return used;
}

/* What the stream says, "enabled; insn 401000; …". */
static void stream_text(const struct ptw_recording *rec, unsigned int flags, const uint8_t *code, char *text, size_t room)
{
	const struct ptw_flow *flow;
	struct ptw_stream *stream;
	struct ptw_error err;
	size_t used = 0;

	stream = open_insns(rec, flags, &err);
	if (!stream)
		fail_msg("%s", err.text);
	text[0] = '\0';
	while ((flow = ptw_stream_next(stream)) && used < room - 200) {
		const char *separator = used ? "; " : "";

		if (flow->kind == PTW_FLOW_RUN) {
			used += snprintf(text + used, room - used, "%s", separator);
			used += run_text(flow, code, text + used, room - used);
		} else if (flow->kind == PTW_FLOW_GAP) {
			used += snprintf(text + used, room - used, "%serror at %llu, %llu lost", separator,
					 (unsigned long long)flow->offset, (unsigned long long)flow->value);
		} else if (flow->kind == PTW_FLOW_BEGIN) {
			used += snprintf(text + used, room - used, "%senabled", separator);
		} else if (flow->kind == PTW_FLOW_END) {
			used += snprintf(text + used, room - used, "%s%sdisabled", separator, flow->value ? "async-" : "");
		}
	}
	assert_null(ptw_stream_next(stream));
	ptw_stream_close(stream);
}

/* nop; jz +1; nop; nop; ret; jmp to itself */
static const uint8_t code[] = { 0x90, 0x74, 0x01, 0x90, 0x90, 0xc3, 0xeb, 0xfe };

static void assert_stream(const uint8_t *data, size_t size, const char *expected)
{
	static const unsigned int ways[] = { 0, PTW_STREAM_REFERENCE };
	char path[] = "/tmp/ptwatch-test-XXXXXX", text[2048];
	struct ptw_recording rec;
	size_t length;

	write_file(path, code, sizeof(code));
	raw_recording(&rec, data, size, path, sizeof(code));
	for (size_t i = 0; i < 2; i++) {
		stream_text(&rec, ways[i], code, text, sizeof(text));
		/* Where an error is noticed differs between versions of libipt. */
		length = strlen(expected);
		if (length > 9 && !strcmp(expected + length - 9, " error at"))
			text[length] = '\0';
		assert_string_equal(text, expected);
	}
	unlink(path);
	ptw_image_free(&rec.image);
}

#define ASSERT_STREAM(expected, ...)						\
	do {									\
		static const uint8_t data_[] = { __VA_ARGS__ };			\
		assert_stream(data_, sizeof(data_), expected);			\
	} while (0)

/* Stop at 0x401004 by an interrupt whose handler isn't traced. */
#define STOP	0x3d, 0x04, 0x10, PGD

static void stream_of_instructions(void **state)
{
	ASSERT_STREAM("enabled; insn 401000; insn 401001; async-disabled",
		      PSB, MODE64, PSBEND, PGE(CODE), 0x06, STOP);
	ASSERT_STREAM("enabled; insn 401000; insn 401001; insn 401003; async-disabled",
		      PSB, MODE64, PSBEND, PGE(CODE), 0x04, STOP);
}

static void stream_goes_on_after_damage(void **state)
{
	/* libipt reads ahead: only where the last good packet leads isn't there. */
	ASSERT_STREAM("enabled; insn 401000; insn 401001; insn 401004; "
		      "insn 401005; error at 31, 3 lost; "
		      "enabled; insn 401000; insn 401001; async-disabled",
		      PSB, MODE64, PSBEND, PGE(CODE), 0x06, 0x2d, 0x04, 0x10, BAD, 0x00,
		      PSB, MODE64, PSBEND, PGE(CODE), 0x06, STOP);
	/* Code that the image does not have. */
	ASSERT_STREAM("enabled; error at", PSB, MODE64, PSBEND, PGE(0x500000), 0x06);
	ASSERT_STREAM("error at 0, 4 lost", 0x02, 0x03, 0x12, 0x00);
	ASSERT_STREAM("", 0, 0, 0, 0);
}

static void unreadable_code(void **state)
{
	static const uint8_t trace[] = { PSB, PSBEND };
	struct ptw_recording rec;
	struct ptw_stream *stream;
	struct ptw_error err;

	raw_recording(&rec, trace, sizeof(trace), "/nonexistent/code", 1);
	assert_null(open_insns(&rec, PTW_STREAM_ALL_CODE, &err));
	assert_non_null(strstr(err.text, "/nonexistent/code"));
	stream = open_insns(&rec, 0, &err);
	assert_non_null(stream);
	ptw_stream_close(stream);
	ptw_image_free(&rec.image);
}

/*
 * Errata of the CPU that wrote the trace, also where libipt is older than that CPU: as docs/errata.md has them, and as libipt 2.2
 * has them by itself.
 */
static void errata(void **state)
{
	static const struct {
		uint16_t family, model;
		const char *errata;
	} cpus[] = {
		{ 6, 0x3d, "bdm70 bdm64 " }, { 6, 0x5e, "bdm70 skd007 skd022 skd010 skl014 skl168 " },
		{ 6, 0x5c, "apl12 apl11 " }, { 6, 0x8c, "bdm70 skd022 skl014 " }, { 6, 0x8f, "bdm70 skd022 skz84 " },
		{ 6, 0xb7, "bdm70 skd022 apl11 " }, { 6, 0xba, "bdm70 skd022 apl11 " }, { 6, 0xaa, "bdm70 skd022 apl11 " },
		{ 6, 0xac, "bdm70 skd022 apl11 " }, { 6, 0xb5, "bdm70 skd022 apl11 " }, { 6, 0xbd, "bdm70 skd022 apl11 " },
		{ 6, 0xc5, "bdm70 skd022 apl11 " }, { 6, 0xc6, "bdm70 skd022 apl11 " }, { 6, 0xcc, "bdm70 skd022 apl11 " },
		{ 6, 0xd5, "bdm70 skd022 apl11 " }, { 6, 0xad, "bdm70 skd022 skz84 " }, { 6, 0xae, "bdm70 skd022 skz84 " },
		{ 6, 0xcf, "bdm70 skd022 skz84 " }, { 6, 0xaf, "apl11 " }, { 6, 0xb6, "apl11 " }, { 6, 0xdd, "apl11 " },
		{ 6, 0xfe, "" }, { 0, 0, "" }, { 15, 0xb7, "" },
	};

	for (size_t i = 0; i < sizeof(cpus) / sizeof(cpus[0]); i++) {
		struct ptw_pt_params p = { .family = cpus[i].family, .model = cpus[i].model, .stepping = 1 };
		struct pt_config c;
		struct ptw_error err;
		char text[128];

		assert_int_equal(ipt_config(&c, &p, (const uint8_t *)"", 0, &err), 0);
		snprintf(text, sizeof(text), "%s%s%s%s%s%s%s%s%s%s", c.errata.bdm70 ? "bdm70 " : "", c.errata.bdm64 ? "bdm64 " : "",
			 c.errata.skd007 ? "skd007 " : "", c.errata.skd022 ? "skd022 " : "", c.errata.skd010 ? "skd010 " : "",
			 /* libipt 2.0 believes that Sapphire Rapids has it, too. */
			 c.errata.skl014 && p.model != 0x8f ? "skl014 " : "", c.errata.apl12 ? "apl12 " : "",
			 c.errata.apl11 ? "apl11 " : "", c.errata.skl168 ? "skl168 " : "", c.errata.skz84 ? "skz84 " : "");
		assert_string_equal(text, cpus[i].errata);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(image_parse),
		cmocka_unit_test(image_parse_refuses),
		cmocka_unit_test(image_table),
		cmocka_unit_test(packets_are_named),
		cmocka_unit_test(ips_are_decompressed),
		cmocka_unit_test(packets_go_on_after_damage),
		cmocka_unit_test(packets_cut_off),
		cmocka_unit_test(packets_of_nothing),
		cmocka_unit_test(stream_of_instructions),
		cmocka_unit_test(stream_goes_on_after_damage),
		cmocka_unit_test(unreadable_code),
		cmocka_unit_test(errata),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
