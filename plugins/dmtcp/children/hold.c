/* A hold, for a rehearsal: see rehearsal.py.
 *
 * While there is a file omfs-hold in DMTCP_TMPDIR (DMTCP's own directory is in it), nothing of the program runs: its
 * threads are still suspended, and this plug-in, the first, has the last word. A file omfs-held.PID tells that this
 * process has come so far. The hold ends with its file, or with the process that the file names.
 */

#include "children.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static int is_held(const char *hold)
{
	char holder[32];

	return omfs_read_small(hold, holder, sizeof holder) && kernel(SYS_kill, atol(holder), 0, 0, 0, 0) != -ESRCH;
}

void omfs_stay_held(void)
{
	struct timespec brief = {0, 5000000};
	const char *directory = dmtcp_get_tmpdir ? dmtcp_get_tmpdir() : NULL;
	char hold[PATH_MAX], told[PATH_MAX];

	if (!directory || snprintf(hold, sizeof hold, "%s/../omfs-hold", directory) >= (int)sizeof hold || !is_held(hold))
		return;
	if (snprintf(told, sizeof told, "%s/../omfs-held.%ld", directory, kernel(SYS_getpid, 0, 0, 0, 0, 0)) <
	    (int)sizeof told) {
		long descriptor = kernel(SYS_openat, AT_FDCWD, (long)told, O_CREAT | O_WRONLY | O_CLOEXEC, 0600, 0);
		if (descriptor >= 0)
			kernel(SYS_close, descriptor, 0, 0, 0, 0);
	}
	while (is_held(hold))
		kernel(SYS_nanosleep, (long)&brief, 0, 0, 0, 0);
}

/* DMTCP cuts files that have grown since the checkpoint. A rehearsal must not: others may write to them. */
int dmtcp_skip_truncate_file_at_restart(const char *path)
{
	static int (*real)(const char *);
	char hold[PATH_MAX];

	if (dmtcp_get_tmpdir && snprintf(hold, sizeof hold, "%s/../omfs-hold", dmtcp_get_tmpdir()) < (int)sizeof hold &&
	    is_held(hold))
		return 1;
	if (!real)
		*(void **)&real = dmtcp_dlsym(RTLD_NEXT, "dmtcp_skip_truncate_file_at_restart");
	return real ? real(path) : 0;
}
