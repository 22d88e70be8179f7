/* Signs for omfs-run: that this process inherits children, and that it is back after a restart. */
#include "children.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>

static void *sign; /* the mapping that shows it */

/* Show in /proc/PID/maps that this process inherits children, or no longer. */
void omfs_show_reaper(void)
{
	enum { SIZE = 4096 };
	int inherits = 0;
	Dl_info self;

	if (kernel(SYS_prctl, PR_GET_CHILD_SUBREAPER, (long)&inherits, 0, 0, 0) || inherits == !!sign)
		return;
	if (inherits && dladdr(&sign, &self)) {
		long descriptor = kernel(SYS_openat, AT_FDCWD, (long)self.dli_fname, O_RDONLY | O_CLOEXEC, 0, 0);
		void *at = mmap(NULL, SIZE, PROT_NONE, MAP_SHARED, (int)descriptor, 0);
		if (at == MAP_FAILED)
			abort();
		kernel(SYS_close, descriptor, 0, 0, 0, 0);
		madvise(at, SIZE, MADV_DONTFORK);
		sign = at;
	} else if (sign) {
		munmap(sign, SIZE);
		sign = NULL;
	}
}

/* DMTCP, too, calls it, also while it restores the program: so this is the C library's own, and looks up nothing. */
int prctl(int option, ...)
{
	long given[4];
	va_list more;

	va_start(more, option);
	for (int index = 0; index < 4; index++)
		given[index] = va_arg(more, long);
	va_end(more);
	long result = kernel(SYS_prctl, option, given[0], given[1], given[2], given[3]);
	if (option == PR_SET_CHILD_SUBREAPER && !result)
		omfs_show_reaper();
	if (result >= 0)
		return (int)result;
	errno = (int)-result;
	return -1;
}

void omfs_show_restarted(void)
{
	const char *directory = dmtcp_get_tmpdir ? dmtcp_get_tmpdir() : NULL;
	char path[4096];

	if (!directory ||
	    snprintf(path, sizeof path, "%s/omfs-restarted-%ld", directory, kernel(SYS_getpid, 0, 0, 0, 0, 0)) >=
		(int)sizeof path)
		return;
	kernel(SYS_close, kernel(SYS_openat, AT_FDCWD, (long)path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600, 0), 0, 0, 0, 0);
}

void omfs_show_reaper_in_child(void)
{
	sign = NULL;
}
