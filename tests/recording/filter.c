// SPDX-License-Identifier: BSD-2-Clause
/* filter CPU: load a BPF program, have the kernel run it for a few packets, and unload it; all on CPU. */
#define _GNU_SOURCE
#include <linux/bpf.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* r0 = 0; 3 times r0 += 100; return r0: so many bytes of the packet are kept */
static const struct bpf_insn program[] = {
	{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .imm = 0 },
	{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 1, .imm = 3 },
	{ .code = BPF_ALU64 | BPF_ADD | BPF_K, .dst_reg = 0, .imm = 100 },
	{ .code = BPF_ALU64 | BPF_SUB | BPF_K, .dst_reg = 1, .imm = 1 },
	{ .code = BPF_JMP | BPF_JNE | BPF_K, .dst_reg = 1, .off = -3, .imm = 0 },
	{ .code = BPF_JMP | BPF_EXIT },
};

static void die(const char *what)
{
	perror(what);
	exit(1);
}

int main(int argc, char **argv)
{
	union bpf_attr attr = {
		.prog_type = BPF_PROG_TYPE_SOCKET_FILTER, .insns = (unsigned long)program,
		.insn_cnt = sizeof(program) / sizeof(program[0]), .license = (unsigned long)"BSD", .prog_name = "ptw_filter",
	};
	cpu_set_t cpus;
	int pair[2], fd;
	char byte = 0;

	CPU_ZERO(&cpus);
	CPU_SET(argc > 1 ? atoi(argv[1]) : 0, &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus))
		die("sched_setaffinity");
	fd = syscall(SYS_bpf, BPF_PROG_LOAD, &attr, sizeof(attr));
	if (fd < 0)
		die("bpf");
	if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) || setsockopt(pair[1], SOL_SOCKET, SO_ATTACH_BPF, &fd, sizeof(fd)))
		die("socket");
	for (int i = 0; i < 5; i++)
		if (write(pair[0], &byte, 1) != 1 || read(pair[1], &byte, 1) != 1)
			die("packet");
	/* What is gone before anybody looks can't be copied. */
	usleep(300000);
	return 0;
}
