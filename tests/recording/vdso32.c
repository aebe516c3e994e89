// SPDX-License-Identifier: BSD-2-Clause
/*
 * vdso32 CPU: a 32-bit program on that CPU that calls the functions of its vDSO, and system calls through it. Without a
 * C library and its headers, which a 64-bit machine may not have for 32-bit programs.
 */
typedef unsigned int u32;
typedef unsigned short u16;

struct elf { unsigned char ident[16]; u16 type, machine; u32 version, entry, phoff, shoff, flags; u16 ehsize, phentsize, phnum; };
struct segment { u32 type, offset, vaddr, paddr, filesz, memsz, flags, align; };
struct dynamic { u32 tag, value; };
struct symbol { u32 name, value, size; unsigned char info, other; u16 section; };
struct aux { u32 type, value; };

enum { PT_DYNAMIC = 2, DT_STRTAB = 5, DT_SYMTAB = 6, AT_SYSINFO = 32, AT_SYSINFO_EHDR = 33 };

typedef int (*two_arguments)(unsigned long, void *);

enum { NR_EXIT = 1, NR_GETPID = 20, NR_GETPPID = 64, NR_SETAFFINITY = 241 };

static unsigned long sysinfo;

/* By way of __kernel_vsyscall */
static long call(long n, long a, long b, void *c)
{
	long ret;

	asm volatile("call *%5" : "=a"(ret) : "a"(n), "b"(a), "c"(b), "d"(c), "m"(sysinfo) : "memory");
	return ret;
}

static int same(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return *a == *b;
}

static two_arguments find(const char *base, const char *name)
{
	const struct elf *elf = (const void *)base;
	const struct segment *p = (const void *)(base + elf->phoff);
	const struct symbol *symbol = 0;
	const char *names = 0;

	for (int i = 0; i < elf->phnum; i++) {
		const struct dynamic *d = (const void *)(base + p[i].offset);

		for (; p[i].type == PT_DYNAMIC && d->tag; d++) {
			if (d->tag == DT_SYMTAB)
				symbol = (const void *)(base + d->value);
			else if (d->tag == DT_STRTAB)
				names = base + d->value;
		}
	}
	/* The names lie behind the symbols. */
	for (; (const char *)symbol < names; symbol++)
		if (same(names + symbol->name, name))
			return (two_arguments)(base + symbol->value);
	return 0;
}

void begin(unsigned long *stack);
void begin(unsigned long *stack)
{
	two_arguments clock_gettime, gettimeofday;
	const char *vdso = 0, *cpu = (const char *)stack[2];
	unsigned long mask = 1ul << (*cpu - '0'), time[2];
	struct aux *aux;

	for (stack += stack[0] + 2; *stack; stack++)
		;
	for (aux = (struct aux *)(stack + 1); aux->type; aux++) {
		if (aux->type == AT_SYSINFO)
			sysinfo = aux->value;
		else if (aux->type == AT_SYSINFO_EHDR)
			vdso = (const char *)aux->value;
	}
	call(NR_SETAFFINITY, 0, sizeof(mask), &mask);
	clock_gettime = find(vdso, "__vdso_clock_gettime");
	gettimeofday = find(vdso, "__vdso_gettimeofday");
	for (int i = 0; i < 20; i++) {
		clock_gettime(i % 8, time);
		gettimeofday((unsigned long)time, 0);
		call(i % 2 ? NR_GETPID : NR_GETPPID, 0, 0, 0);
	}
	call(NR_EXIT, 0, 0, 0);
}

asm(".globl _start\n_start: movl %esp, %eax\n	andl $-16, %esp\n	subl $12, %esp\n	pushl %eax\n	call begin\n");
