// SPDX-License-Identifier: BSD-2-Clause
#include "common/utf8.h"

#include <string.h>

size_t ptw_utf8_size(const char *text)
{
	const unsigned char *s = (const unsigned char *)text;
	size_t n = s[0] < 0x80 ? 1 : s[0] >= 0xc2 && s[0] < 0xe0 ? 2 : (s[0] & 0xf0) == 0xe0 ? 3 :
		   s[0] >= 0xf0 && s[0] < 0xf5 ? 4 : 0;

	for (size_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	}
	/* overlong forms, surrogates, beyond the last code point */
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
	    (s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	return n;
}

char *ptw_printable(const char *text, char *buf, size_t size)
{
	size_t used = 0, n;

	for (; *text; text += n ? n : 1) {
		n = ptw_utf8_size(text);
		if (used + (n ? n : 1) >= size)
			break;
		if (!n || (n == 1 && ((unsigned char)*text < ' ' || *text == 0x7f)))
			buf[used++] = '?';
		else
			for (size_t i = 0; i < n; i++)
				buf[used++] = text[i];
	}
	buf[used] = '\0';
	return buf;
}
