/* SPDX-License-Identifier: BSD-2-Clause */
/* The one version of the program, its library and their man pages. */
#ifndef PTWATCH_COMMON_VERSION_H
#define PTWATCH_COMMON_VERSION_H

#define PTWATCH_VERSION "0.1.0"

#endif /* PTWATCH_COMMON_VERSION_H */
