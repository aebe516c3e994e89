/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kexec KERNEL INITRD: loads that kernel; kexec without arguments goes over to it. As the first
 * process of that kernel it says so and ends the machine.
 */
#include <fcntl.h>
#include <linux/kexec.h>
#include <linux/reboot.h>
#include <stdio.h>
#include <string.h>
#include <sys/reboot.h>
#include <sys/syscall.h>
#include <unistd.h>

static int second_kernel(void)
{
	printf("the next kernel is here\n");
	fflush(stdout);
	sync();
	return reboot(LINUX_REBOOT_CMD_POWER_OFF);
}

int main(int argc, char **argv)
{
	static const char cmdline[] = "console=ttyS0 panic=-1 nokaslr mitigations=off nr_cpus=1";
	int kernel, initrd;

	if (getpid() == 1)
		return second_kernel();
	if (argc == 1) {
		reboot(LINUX_REBOOT_CMD_KEXEC);
		perror("kexec: reboot");
		return 1;
	}
	if (argc != 3) {
		fprintf(stderr, "kexec [KERNEL INITRD]\n");
		return 2;
	}
	kernel = open(argv[1], O_RDONLY);
	initrd = open(argv[2], O_RDONLY);
	if (kernel < 0 || initrd < 0 || syscall(SYS_kexec_file_load, kernel, initrd, sizeof(cmdline), cmdline, 0L)) {
		perror("kexec: load");
		return 1;
	}
	return 0;
}
