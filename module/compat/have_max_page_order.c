// SPDX-License-Identifier: GPL-2.0
#include <linux/mmzone.h>

extern int probe;
int probe = MAX_PAGE_ORDER;
