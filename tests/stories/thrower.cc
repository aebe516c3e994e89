// SPDX-License-Identifier: BSD-2-Clause
/*
 * Throws C++ exceptions, so often: out of four functions, of which one has something to destroy and one catches and throws
 * again; of a type that the inner handler does not take; and caught where another is being handled. No story: it is to be
 * seen that call stacks stay right.
 *
 *	thrower TIMES
 */
#include <cstdlib>
#include <stdexcept>

#define NOINLINE	extern "C" __attribute__((noinline, noclone))

static volatile unsigned long sink;

NOINLINE void leaf(void)
{
	sink = sink + 1;
}

NOINLINE void destroyed(void)
{
	sink = sink + 2;
}

struct guard {
	~guard() { destroyed(); }
};

NOINLINE void throws(int what)
{
	leaf();
	if (what == 1)
		throw 1;
	throw std::runtime_error("two");
}

NOINLINE void destroys(int what)
{
	guard g;

	throws(what);
	sink = sink + 3;
}

NOINLINE void throws_again(int what)
{
	try {
		destroys(what);
	} catch (...) {
		leaf();
		throw;
	}
}

/* Its handler is not for this one. */
NOINLINE void passes_by(int what)
{
	try {
		throws_again(what);
	} catch (long) {
		leaf();
	}
}

NOINLINE void catches_int(void)
{
	try {
		passes_by(1);
	} catch (int) {
		leaf();
	}
	leaf();
}

/* While one is handled, another comes and goes. */
NOINLINE void catches_two(void)
{
	try {
		passes_by(2);
	} catch (const std::exception &) {
		catches_int();
	}
	leaf();
}

NOINLINE void all_throws(void)
{
	catches_int();
	catches_two();
}

int main(int argc, char **argv)
{
	unsigned long i, times = argc > 1 ? strtoul(argv[1], NULL, 0) : 1;

	for (i = 0; i < times; i++)
		all_throws();
	return 0;
}
