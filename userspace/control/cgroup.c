// SPDX-License-Identifier: BSD-2-Clause
#include "control/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <linux/magic.h>

#include "common/number.h"

#define FILEID_KERNFS 0xfe	/* of <linux/exportfs.h>, for open_by_handle_at(2): the id alone */

/* Where cgroup2 is mounted. */
static int find_mount(char *path, size_t size)
{
	FILE *mounts = setmntent("/proc/self/mounts", "re");
	struct mntent *mount;
	int found = -1;

	while (mounts && found && (mount = getmntent(mounts))) {
		if (strcmp(mount->mnt_type, "cgroup2") || strlen(mount->mnt_dir) >= size)
			continue;
		strcpy(path, mount->mnt_dir);
		found = 0;
	}
	if (mounts)
		endmntent(mounts);
	return found;
}

static int id_of_directory(const char *path, uint64_t *id)
{
	struct statfs fs;
	struct stat st;

	if (stat(path, &st) || !S_ISDIR(st.st_mode) || statfs(path, &fs) || fs.f_type != CGROUP2_SUPER_MAGIC)
		return -1;
	/* kernfs numbers its inodes by the ids. */
	*id = st.st_ino;
	return 0;
}

int ptw_cgroup_id(const char *name, uint64_t *id, struct ptw_error *err)
{
	char mount[512], path[4096];

	if (!ptw_parse_uint(name, 1, UINT64_MAX, id))
		return 0;
	if (name[0] == '/' && !id_of_directory(name, id))
		return 0;
	if (find_mount(mount, sizeof(mount)))
		return ptw_error_set(err, PTW_EXIT_UNSUPPORTED, "cgroup2 is not mounted, so '%s' is not to be found; mount it: mount -t cgroup2 none /sys/fs/cgroup",
				     name);
	snprintf(path, sizeof(path), "%s/%s", mount, name + strspn(name, "/"));
	if (!id_of_directory(path, id))
		return 0;
	return ptw_error_set(err, PTW_EXIT_FAILED, "'%s' is no cgroup below %s; /proc/PID/cgroup tells that of a process", name,
			     mount);
}

char *ptw_cgroup_path(uint64_t id, char *buf, size_t size)
{
	union {
		struct file_handle handle;
		char room[sizeof(struct file_handle) + sizeof(uint64_t)];
	} wanted = { .handle = { .handle_bytes = sizeof(id), .handle_type = FILEID_KERNFS } };
	char mount[512], link[64], path[4096];
	int mount_fd = -1, fd = -1;
	char *found = NULL;
	ssize_t length;
	size_t skip;

	memcpy(wanted.handle.f_handle, &id, sizeof(id));
	if (find_mount(mount, sizeof(mount)))
		return NULL;
	mount_fd = open(mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (mount_fd >= 0)
		fd = open_by_handle_at(mount_fd, &wanted.handle, O_PATH | O_CLOEXEC);
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	length = fd >= 0 ? readlink(link, path, sizeof(path) - 1) : -1;
	if (length >= 0) {
		path[length] = '\0';
		skip = strlen(mount);
		if (!strncmp(path, mount, skip)) {
			snprintf(buf, size, "%s", path[skip] ? path + skip : "/");
			found = buf;
		}
	}
	if (fd >= 0)
		close(fd);
	if (mount_fd >= 0)
		close(mount_fd);
	return found;
}
