/* A plug-in for DMTCP (--with-plugin): ended children, interval timers, and duplicates outlast a checkpoint.
 *
 * DMTCP drops children that have ended and were not waited for: after a restart their parent learns a wrong exit
 * status, or none. This plug-in collects them at the checkpoint, while all threads are suspended, and hands them out
 * through wait() and its relatives, each once, before what the kernel has. DMTCP also turns a repeating interval timer
 * into one that fires once; it is armed again with its interval. A SIGCHLD or a timer's signal that was pending is sent
 * again after a restart. A fork() right after a restart waits until all processes run. And omfs-run can hold all
 * processes after a checkpoint or at a restart, before the program itself runs again.
 *
 * DMTCP wraps fcntl() and mkstemp(), but not what programs with large file support call instead, Python among them:
 * fcntl64() and mkstemp64(). Descriptors that were duplicated or made so would be missing after a restart.
 *
 * Two signs are for omfs-run. A process that inherits children (PR_SET_CHILD_SUBREAPER) would lose them: it gets a
 * mapping of this library without access, so that the checkpoint is refused. And a process that is back after a restart
 * makes the file omfs-restarted-PID, so that its end is not taken for that of a failed restart.
 */
#include "children.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int omfs_fits;

void *omfs_next_function(const char *name)
{
	void *found = dmtcp_dlsym ? dmtcp_dlsym(RTLD_NEXT, name) : dlsym(RTLD_NEXT, name);

	if (!found) {
		fprintf(stderr, "omfs_children.so: no function %s\n", name);
		abort();
	}
	return found;
}

const struct next *omfs_next(void)
{
	static struct next next;

	if (!next.kill) {
		*(void **)&next.fork = omfs_next_function("fork");
		*(void **)&next.wait4 = omfs_next_function("wait4");
		*(void **)&next.waitid = omfs_next_function("waitid");
		*(void **)&next.setpgid = omfs_next_function("setpgid");
		*(void **)&next.getpgid = omfs_next_function("getpgid");
		*(void **)&next.kill = omfs_next_function("kill");
	}
	return &next;
}

/* Reads a small file of /proc by way of the kernel; its length, 0 on failure. */
size_t omfs_read_small(const char *path, char *text, size_t size)
{
	long descriptor = kernel(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC, 0, 0);
	long length, total = 0;

	if (descriptor < 0)
		return 0;
	while ((size_t)total < size - 1 &&
	       (length = kernel(SYS_read, descriptor, (long)text + total, (long)size - 1 - total, 0, 0)) > 0)
		total += length;
	kernel(SYS_close, descriptor, 0, 0, 0, 0);
	text[total] = 0;
	return (size_t)total;
}

static void on_event(int event, union event_data *data)
{
	switch (event) {
	case ATFORK_CHILD:
		omfs_have_no_ended();
		omfs_wait_in_child();
		omfs_fork_in_child();
		omfs_gone_in_child();
		omfs_show_reaper_in_child();
		break;
	case PRE_EXEC:
		omfs_send_ended(data->exec.descriptor);
		break;
	case POST_EXEC:
		omfs_receive_ended(data->exec.descriptor);
		break;
	case PRECHECKPOINT:
		omfs_collect_all_ended();
		omfs_keep_signals();
		break;
	case RESUME:
		omfs_stay_held();
		omfs_fork_waits_for_all();
		break;
	case RESTART:
		omfs_stay_held();
		omfs_fork_waits_for_all();
		omfs_note_restart();
		omfs_show_restarted();
		omfs_send_signals();
		break;
	default:
		break;
	}
}

void dmtcp_initialize_plugin(void)
{
	void (*next)(void);

	if (!dmtcp_register_plugin || !dmtcp_dlsym || !dmtcp_get_coordinator_status || !dmtcp_plugin_disable_ckpt ||
	    !dmtcp_plugin_enable_ckpt ||
	    (!(dmtcp_real_to_virtual_pid && dmtcp_virtual_to_real_pid) &&
	     !(dmtcp_pid_real_to_virtual && dmtcp_pid_virtual_to_real))) {
		const char *code = getenv("DMTCP_FAIL_RC");
		fprintf(stderr, "omfs_children.so fits DMTCP 3.0 to 5.0, and not this one\n");
		_exit(code && atoi(code) ? atoi(code) : 99);
	}
	omfs_fits = 1;
	omfs_next();
	omfs_find_dmtcp();
	omfs_show_reaper(); /* which exec keeps */
	dmtcp_register_plugin((struct descriptor){dmtcp_pid_real_to_virtual ? "4" : "3", "3.0", "omfs_children",
						  "omfs-daemon", "", "Ended children, interval timers, duplicates", on_event});
	*(void **)&next = dmtcp_dlsym(RTLD_NEXT, "dmtcp_initialize_plugin");
	if (next)
		next();
}
