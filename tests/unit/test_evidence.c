// SPDX-License-Identifier: BSD-2-Clause
/* What counts of what threads did, from flows written by hand. */
#include "flow_script.h"

#include <stdio.h>
#include <stdlib.h>

#include <linux/ptwatch.h>

#include "report/evidence.h"

static struct ptw_evidence *evidence;
static bool settled;

static int on_event(void *context, const struct ptw_story_event *event)
{
	int ret = ptw_evidence_take(evidence, event);

	assert_true(ret >= 0);
	return 0;
}

static void begin(const struct ptw_evidence_options *options)
{
	evidence = ptw_evidence_new(options);
	settled = false;
	assert_non_null(evidence);
	flow_begin(on_event, NULL);
	flow_in(0, "main");
}

static void settle(void)
{
	if (settled)
		return;
	settled = true;
	flow_end();
	assert_int_equal(ptw_evidence_settle(evidence), 0);
}

/* "time event symbol" of each row. */
static void end(const char *expected)
{
	static struct ptw_out out;
	char *text = NULL, *line, *next, short_text[4096] = "";
	size_t size;
	FILE *file = open_memstream(&text, &size);

	settle();
	ptw_evidence_end(evidence);
	ptw_out_init(&out, file, false);
	ptw_evidence_write(evidence, &out, true);
	assert_int_equal(ptw_out_flush(&out), 0);
	fclose(file);
	for (line = text; *line; line = next) {
		unsigned int since;
		char *event = strstr(line, "\"event\":\"") + 9, *symbol;

		next = strchr(line, '\n') + 1;
		next[-1] = '\0';
		assert_int_equal(sscanf(line, "{\"since_t0_ns\":%u", &since), 1);
		symbol = strstr(event, "\"symbol\":\"");
		snprintf(short_text + strlen(short_text), sizeof(short_text) - strlen(short_text), "%u %.*s %.*s%s\n", since,
			 (int)strcspn(event, "\""), event, symbol ? (int)strcspn(symbol + 10, "+") : 0,
			 symbol ? symbol + 10 : "", strstr(event, "\"suspicious\":true") ? " !" : "");
	}
	free(text);
	ptw_evidence_free(evidence);
	assert_string_equal(short_text, expected);
}

/* A system call that does nothing of note. */
static void harmless(uint64_t now)
{
	flow_syscall(now, "main", "entry_SYSCALL_64");
	flow_call(now + 1, "entry_SYSCALL_64", "_copy_from_user");
	flow_return(now + 2, "_copy_from_user");
	flow_iret(now + 3, "entry_SYSCALL_64");
}

static void change_of_credentials(uint64_t now, const char *syscall)
{
	flow_syscall(now, "main", "entry_SYSCALL_64");
	flow_call(now + 1, "entry_SYSCALL_64", syscall);
	flow_call(now + 2, syscall, "_copy_from_user");
	flow_return(now + 3, "_copy_from_user");
	flow_call(now + 4, syscall, "demo_ioctl");
	flow_interrupt(now + 5, "demo_ioctl", "asm_sysvec_timer");
	flow_call(now + 5, "asm_sysvec_timer", "_copy_from_user");	/* somebody else's */
	flow_return(now + 5, "_copy_from_user");
	flow_iret(now + 6, "asm_sysvec_timer");
	flow_call(now + 7, "demo_ioctl", "prepare_creds");
	flow_return(now + 7, "prepare_creds");
	flow_call(now + 8, "demo_ioctl", "commit_creds");
	flow_return(now + 9, "commit_creds");
	flow_return(now + 10, "demo_ioctl");
	flow_return(now + 11, syscall);
	flow_iret(now + 12, "entry_SYSCALL_64");
}

static void exec(uint64_t now)
{
	flow_syscall(now, "main", "entry_SYSCALL_64");
	flow_call(now + 1, "entry_SYSCALL_64", "__x64_sys_execve");
	flow_call(now + 2, "__x64_sys_execve", "do_execveat_common");
	flow_return(now + 3, "do_execveat_common");
	flow_return(now + 4, "__x64_sys_execve");
	flow_iret(now + 5, "entry_SYSCALL_64");
}

static const char chain[] =
	"0 kernel entry entry_SYSCALL_64\n1 system call __x64_sys_ioctl\n2 copy from user _copy_from_user\n"
	"4 call demo_ioctl\n7 credentials prepare_creds\n8 credentials commit_creds !\n12 kernel exit \n";

/* Credentials that an ioctl has no business to change: told from its entry on, with the exec that follows. */
static void wrong_credentials(void **state)
{
	struct ptw_evidence_options options = { .tid = -1 };
	char expected[1024];

	begin(&options);
	exec(50);
	harmless(80);
	change_of_credentials(100, "__x64_sys_ioctl");
	harmless(120);
	exec(200);
	snprintf(expected, sizeof(expected), "%s100 kernel entry entry_SYSCALL_64\n101 system call __x64_sys_execve\n"
		 "102 exec do_execveat_common\n105 kernel exit \n", chain);
	end(expected);
}

/* setuid() may: then there is no suspicion, and all of note is shown. */
static void rightful_credentials(void **state)
{
	struct ptw_evidence_options options = { .tid = -1 };

	begin(&options);
	harmless(80);
	change_of_credentials(100, "__x64_sys_setuid");
	end("0 kernel entry entry_SYSCALL_64\n1 system call __x64_sys_setuid\n2 copy from user _copy_from_user\n"
	    "7 credentials prepare_creds\n8 credentials commit_creds\n12 kernel exit \n");
}

/* Only the process that did it, and those that it made. */
static void other_processes(void **state)
{
	struct ptw_evidence_options options = { .tid = -1 };

	begin(&options);
	flow_thread[1].pid = flow_thread[1].tid = 300;
	flow_thread[2].pid = flow_thread[2].tid = 400;
	change_of_credentials(100, "__x64_sys_ioctl");
	flow_switch(160, 1, 0);
	flow_in(161, "main");
	exec(170);
	flow_switch(180, 2, 0);
	flow_in(181, "main");
	flow_syscall(190, "main", "entry_SYSCALL_64");
	flow_call(191, "entry_SYSCALL_64", "do_execveat_common");
	flow_return(192, "do_execveat_common");
	flow_iret(193, "entry_SYSCALL_64");
	settle();
	ptw_evidence_fork(evidence, 150, 400, 100);
	assert_int_equal(ptw_evidence_exec(evidence, 175, 0, 300, 300, "ls"), 0);
	assert_int_equal(ptw_evidence_exec(evidence, 192, 0, 400, 400, "id"), 0);
	{
		char expected[1024];

		snprintf(expected, sizeof(expected), "%s90 kernel entry entry_SYSCALL_64\n91 exec do_execveat_common\n"
			 "92 new program \n93 kernel exit \n", chain);
		end(expected);
	}
}

/* The way to an alarm: from the entry to the hit, with every function in between. */
static void to_an_alarm(void **state)
{
	struct ptw_alarm alarm = { .seq = 3, .access = PTWATCH_ACCESS_W, .label = "table+0x0" };
	struct ptw_evidence_options options = { .tid = -1, .alarm = &alarm, .alarm_number = 3, .point = { .found = true } };

	/* The store is the instruction behind the last branch: the begin, four records of harmless(), four of these. */
	options.point.insn_index = 9;
	options.point.access_ip = flow_address("memcpy") + 0x12;
	begin(&options);
	harmless(50);
	flow_syscall(100, "main", "entry_SYSCALL_64");
	flow_call(101, "entry_SYSCALL_64", "__x64_sys_ioctl");
	flow_call(102, "__x64_sys_ioctl", "demo_ioctl");
	flow_call(103, "demo_ioctl", "memcpy");
	flow_insns++;
	flow_interrupt(104, "memcpy", "asm_exc_page_fault");
	end("0 kernel entry entry_SYSCALL_64\n1 system call __x64_sys_ioctl\n2 call demo_ioctl\n3 call memcpy\n4 ALARM memcpy\n");
}

/* All steps of a stretch of time, of note or not. */
static void window(void **state)
{
	struct ptw_evidence_options options = { .tid = -1, .window = true, .from = 120, .to = 122 };

	begin(&options);
	change_of_credentials(100, "__x64_sys_ioctl");
	harmless(120);
	harmless(130);
	end("0 kernel entry entry_SYSCALL_64\n1 copy from user _copy_from_user\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(wrong_credentials), cmocka_unit_test(rightful_credentials), cmocka_unit_test(other_processes),
		cmocka_unit_test(to_an_alarm),	     cmocka_unit_test(window),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
