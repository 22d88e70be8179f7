/* The children that have ended and were not yet waited for, oldest first. */
#include "children.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static struct {
	struct child *list; /* from mmap: the checkpoint thread must not allocate */
	size_t count, room;
} mine;

pid_t omfs_to_virtual(pid_t pid)
{
	return dmtcp_pid_real_to_virtual ? dmtcp_pid_real_to_virtual(pid) : dmtcp_real_to_virtual_pid(pid);
}

static int has_room(void)
{
	size_t room = mine.room ? 2 * mine.room : 64;
	long got;

	if (mine.count < mine.room)
		return 1;
	if (mine.list)
		got = kernel(SYS_mremap, (long)mine.list, (long)(mine.room * sizeof *mine.list),
			     (long)(room * sizeof *mine.list), MREMAP_MAYMOVE, 0);
	else
		got = (long)mmap(NULL, room * sizeof *mine.list, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				 -1, 0);
	if (got < 0 && got > -4096)
		return 0;
	mine.list = (struct child *)got;
	mine.room = room;
	return 1;
}

void omfs_forget_ended(struct child *child)
{
	mine.count--;
	memmove(child, child + 1, (size_t)(mine.list + mine.count - child) * sizeof *child);
}

/* The oldest one that is waited for, or NULL. */
struct child *omfs_find_ended(idtype_t type, id_t id)
{
	for (struct child *child = mine.list; child < mine.list + mine.count; child++)
		if (type == P_ALL || (type == P_PID && (id_t)child->pid == id) ||
		    (type == P_PGID && (id_t)child->group == id))
			return child;
	return NULL;
}

/* Take one ended child from the kernel into the list, or NULL; type and id as the kernel knows them. */
struct child *omfs_collect_ended(idtype_t type, id_t id)
{
	siginfo_t info = {0};
	struct child child = {0};

	if (!has_room() ||
	    kernel(SYS_waitid, type, (long)id, (long)&info, WEXITED | WNOHANG | WNOWAIT, 0) || !info.si_pid)
		return NULL;
	child.pid = omfs_to_virtual(info.si_pid);
	child.group = omfs_to_virtual((pid_t)kernel(SYS_getpgid, info.si_pid, 0, 0, 0, 0));
	child.uid = info.si_uid;
	/* Through DMTCP, which then forgets the pid. */
	if (omfs_next()->wait4(child.pid, &child.status, WNOHANG, &child.usage) != child.pid &&
	    kernel(SYS_wait4, info.si_pid, (long)&child.status, WNOHANG, (long)&child.usage, 0) != info.si_pid)
		return NULL;
	mine.list[mine.count] = child;
	return mine.list + mine.count++;
}

void omfs_describe_ended(const struct child *child, siginfo_t *info)
{
	memset(info, 0, sizeof *info);
	info->si_signo = SIGCHLD;
	info->si_code = WIFEXITED(child->status) ? CLD_EXITED : WCOREDUMP(child->status) ? CLD_DUMPED : CLD_KILLED;
	info->si_pid = child->pid;
	info->si_uid = child->uid;
	info->si_status = WIFEXITED(child->status) ? WEXITSTATUS(child->status) : WTERMSIG(child->status);
}

int omfs_describe_last_ended(siginfo_t *info)
{
	if (mine.count)
		omfs_describe_ended(mine.list + mine.count - 1, info);
	return mine.count > 0;
}

int omfs_has_ended(void)
{
	return mine.count > 0;
}

void omfs_have_no_ended(void)
{
	mine.count = 0;
}

/* --- at a checkpoint */

/* Whether a child is on its way out: it is no longer part of the checkpoint, and not yet to be waited for.
 *
 * It has closed its connection to the coordinator, a descriptor that is the same in all releases. */
static int is_ending(long pid)
{
	enum { PF_EXITING = 4, COORDINATOR = 821 };
	char path[64], text[1024];
	unsigned long flags = 0;

	snprintf(path, sizeof path, "/proc/%ld/stat", pid);
	if (!omfs_read_small(path, text, sizeof text))
		return 0;
	const char *rest = strrchr(text, ')');
	/* state ppid pgrp session tty_nr tpgid flags */
	if (!rest || sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %lu", &flags) != 1)
		return 0;
	if (flags & PF_EXITING)
		return 1;
	snprintf(path, sizeof path, "/proc/%ld/fd/%d", pid, COORDINATOR);
	return kernel(SYS_readlinkat, AT_FDCWD, (long)path, (long)text, sizeof text, 0) == -ENOENT;
}

/* The same for the children that one of our threads has forked. */
static int has_ending_child(const char *thread)
{
	static char text[1 << 16];
	char path[64];

	snprintf(path, sizeof path, "/proc/self/task/%.20s/children", thread);
	if (!omfs_read_small(path, text, sizeof text))
		return 0;
	for (char *at = text, *end; *at; at = end) {
		long pid = strtol(at, &end, 10);
		if (end == at)
			break;
		if (is_ending(pid))
			return 1;
	}
	return 0;
}

static int any_ending_child(void)
{
	static char entries[1 << 14];
	long descriptor = kernel(SYS_openat, AT_FDCWD, (long)"/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0, 0);
	long length;
	int found = 0;

	if (descriptor < 0)
		return 0;
	while (!found &&
	       (length = kernel(SYS_getdents64, descriptor, (long)entries, sizeof entries, 0, 0)) > 0)
		for (long at = 0; at < length && !found;) {
			const struct entry {
				uint64_t inode;
				int64_t offset;
				unsigned short size;
				unsigned char type;
				char name[];
			} *entry = (const struct entry *)(entries + at);
			found = entry->name[0] != '.' && has_ending_child(entry->name);
			at += entry->size;
		}
	kernel(SYS_close, descriptor, 0, 0, 0, 0);
	return found;
}

void omfs_collect_all_ended(void)
{
	struct timespec brief = {0, 1000000};

	for (int tries = 0; tries < 2000; tries++) {
		while (omfs_collect_ended(P_ALL, 0))
			;
		if (!any_ending_child())
			break;
		kernel(SYS_nanosleep, (long)&brief, 0, 0, 0, 0);
	}
}

/* --- exec: the list goes to the new program through DMTCP's own file */

static void transfer(long call, int descriptor, void *data, size_t size)
{
	char *at = data;

	while (size) {
		long done = kernel(call, descriptor, (long)at, (long)size, 0, 0);
		if (done == -EINTR)
			continue;
		if (done <= 0)
			abort();
		at += done;
		size -= (size_t)done;
	}
}

void omfs_send_ended(int descriptor)
{
	transfer(SYS_write, descriptor, &mine.count, sizeof mine.count);
	transfer(SYS_write, descriptor, mine.list, mine.count * sizeof *mine.list);
}

void omfs_receive_ended(int descriptor)
{
	struct child child;
	size_t count;

	transfer(SYS_read, descriptor, &count, sizeof count);
	while (count--) {
		transfer(SYS_read, descriptor, &child, sizeof child);
		if (has_room())
			mine.list[mine.count++] = child;
	}
}
