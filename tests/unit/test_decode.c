// SPDX-License-Identifier: BSD-2-Clause
/* Images as people write them, packets, and the stream of a decoder, on traces written by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "decode/decoder.h"
#include "decode/image.h"
#include "decode/packets.h"

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
static void packet_text(const uint8_t *data, size_t size, char *text, size_t room)
{
	struct ptw_packets *packets = ptw_packets_new(&params, data, size, NULL);
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

static void assert_packets(const uint8_t *data, size_t size, const char *expected)
{
	char text[1024];

	packet_text(data, size, text, sizeof(text));
	assert_string_equal(text, expected);
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

static void packets_of_nothing(void **state)
{
	assert_packets(NULL, 0, "");
}

/* ---- the decoder ---- */

/* What a decoder says, "enabled 401000; insn 401000; …". */
static void stream_text(const uint8_t *data, size_t size, const char *code_path, size_t code_size,
			unsigned int flags, char *text, size_t room)
{
	struct ptw_image image = { 0 };
	struct ptw_decoder_config config = { .params = &params, .image = &image, .data = data, .size = size,
					     .flags = flags };
	struct ptw_decoder *decoder;
	struct ptw_error err;
	struct ptw_item item;
	size_t used = 0;

	assert_int_equal(ptw_image_add(&image, code_path, 0, code_size, CODE, &err), 0);
	decoder = ptw_decoder_new(&config, &err);
	if (!decoder)
		fail_msg("%s", err.text);
	ptw_image_free(&image);
	text[0] = '\0';
	while (ptw_decoder_next(decoder, &item) != PTW_ITEM_END && used < room - 64) {
		const char *separator = used ? "; " : "";

		if (item.kind == PTW_ITEM_INSN)
			used += snprintf(text + used, room - used, "%sinsn %llx*%u", separator,
					 (unsigned long long)item.insn.ip, item.insn.count);
		else if (item.kind == PTW_ITEM_ERROR)
			used += snprintf(text + used, room - used, "%serror at %llu, %llu lost", separator,
					 (unsigned long long)item.offset,
					 (unsigned long long)item.error.lost);
		else if (!item.event.status_update)	/* 2.0 has fewer of them than 2.1 */
			used += snprintf(text + used, room - used, "%s%s", separator,
					 ptw_event_name(item.event.type));
	}
	assert_int_equal(ptw_decoder_next(decoder, &item), PTW_ITEM_END);
	ptw_decoder_free(decoder);
}

/* nop; jz +1; nop; nop; ret; jmp to itself */
static const uint8_t code[] = { 0x90, 0x74, 0x01, 0x90, 0x90, 0xc3, 0xeb, 0xfe };

static void assert_stream(const uint8_t *data, size_t size, unsigned int flags, const char *expected)
{
	char path[] = "/tmp/ptwatch-test-XXXXXX", text[2048];
	size_t length;

	write_file(path, code, sizeof(code));
	stream_text(data, size, path, sizeof(code), flags, text, sizeof(text));
	unlink(path);
	/* Where an error is noticed differs between versions of libipt. */
	length = strlen(expected);
	if (length > 9 && !strcmp(expected + length - 9, " error at"))
		text[length] = '\0';
	assert_string_equal(text, expected);
}

#define ASSERT_STREAM(flags, expected, ...)					\
	do {									\
		static const uint8_t data_[] = { __VA_ARGS__ };			\
		assert_stream(data_, sizeof(data_), flags, expected);		\
	} while (0)

/* Stop at 0x401004 by an interrupt whose handler isn't traced. */
#define STOP	0x3d, 0x04, 0x10, PGD

static void stream_of_instructions(void **state)
{
	ASSERT_STREAM(0, "enabled; insn 401000*1; insn 401001*1; async-disabled",
		      PSB, MODE64, PSBEND, PGE(CODE), 0x06, STOP);
	ASSERT_STREAM(0, "enabled; insn 401000*1; insn 401001*1; insn 401003*1; async-disabled",
		      PSB, MODE64, PSBEND, PGE(CODE), 0x04, STOP);
	ASSERT_STREAM(PTW_DECODE_BLOCKS, "enabled; insn 401000*2; insn 401003*1; async-disabled",
		      PSB, MODE64, PSBEND, PGE(CODE), 0x04, STOP);
}

static void stream_goes_on_after_damage(void **state)
{
	/* libipt reads ahead: only where the last good packet leads isn't there. */
	ASSERT_STREAM(0, "enabled; insn 401000*1; insn 401001*1; insn 401004*1; "
		      "insn 401005*1; error at 31, 3 lost; "
		      "enabled; insn 401000*1; insn 401001*1; async-disabled",
		      PSB, MODE64, PSBEND, PGE(CODE), 0x06, 0x2d, 0x04, 0x10, BAD, 0x00,
		      PSB, MODE64, PSBEND, PGE(CODE), 0x06, STOP);
	/* Code that the image does not have. */
	ASSERT_STREAM(0, "enabled; error at", PSB, MODE64, PSBEND, PGE(0x500000), 0x06);
	ASSERT_STREAM(0, "error at 0, 4 lost", 0x02, 0x03, 0x12, 0x00);
	ASSERT_STREAM(0, "", 0, 0, 0, 0);
}

static void stream_leaves_endless_loops(void **state)
{
	static const uint8_t trace[] = { PSB, MODE64, PSBEND, PGE(CODE + 6), 0x06, 0x06, PSB, PSBEND };
	char path[] = "/tmp/ptwatch-test-XXXXXX";
	struct ptw_image image = { 0 };
	struct ptw_decoder_config config = {
		.params = &params, .image = &image, .data = trace, .size = sizeof(trace)
	};
	struct ptw_decoder *decoder;
	struct ptw_item item;
	unsigned int errors = 0;

	write_file(path, code, sizeof(code));
	assert_int_equal(ptw_image_add(&image, path, 0, sizeof(code), CODE, NULL), 0);
	decoder = ptw_decoder_new(&config, NULL);
	assert_non_null(decoder);
	while (ptw_decoder_next(decoder, &item) != PTW_ITEM_END)
		errors += item.kind == PTW_ITEM_ERROR;
	assert_int_equal(errors, 1);
	ptw_decoder_free(decoder);
	ptw_image_free(&image);
	unlink(path);
}

static void unreadable_code(void **state)
{
	struct ptw_image image = { 0 };
	static const uint8_t trace[] = { PSB, PSBEND };
	struct ptw_decoder_config config = {
		.params = &params, .image = &image, .data = trace, .size = sizeof(trace)
	};
	struct ptw_decoder *decoder;
	struct ptw_error err;

	assert_int_equal(ptw_image_add(&image, "/nonexistent/code", 0, 1, CODE, NULL), 0);
	assert_null(ptw_decoder_new(&config, &err));
	assert_non_null(strstr(err.text, "/nonexistent/code"));
	config.flags = PTW_DECODE_SKIP_UNREADABLE;
	decoder = ptw_decoder_new(&config, &err);
	assert_non_null(decoder);
	ptw_decoder_free(decoder);
	ptw_image_free(&image);
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
		cmocka_unit_test(packets_of_nothing),
		cmocka_unit_test(stream_of_instructions),
		cmocka_unit_test(stream_goes_on_after_damage),
		cmocka_unit_test(stream_leaves_endless_loops),
		cmocka_unit_test(unreadable_code),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
