/* wait() and its relatives: each ended child once, first those that a checkpoint has collected. */
#include "children.h"
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static pid_t to_real(pid_t pid)
{
	return dmtcp_pid_virtual_to_real ? dmtcp_pid_virtual_to_real(pid) : dmtcp_virtual_to_real_pid(pid);
}

void omfs_lock_ended(struct guard *guard)
{
	sigset_t all;

	sigfillset(&all);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &guard->cancel);
	pthread_sigmask(SIG_SETMASK, &all, &guard->signals);
	dmtcp_plugin_disable_ckpt();
	pthread_mutex_lock(&lock);
}

void omfs_unlock_ended(const struct guard *guard)
{
	pthread_mutex_unlock(&lock);
	dmtcp_plugin_enable_ckpt();
	pthread_sigmask(SIG_SETMASK, &guard->signals, NULL);
	pthread_setcancelstate(guard->cancel, NULL);
}

/* DMTCP, too, polls instead of blocking in the kernel, but for up to a second. */
static void pause_between(long *nanoseconds)
{
	struct timespec time = {0, *nanoseconds};

	nanosleep(&time, NULL);
	if (*nanoseconds < 16000000)
		*nanoseconds *= 2;
}

pid_t wait4(pid_t pid, int *status, int options, struct rusage *usage)
{
	idtype_t type = pid > 0 ? P_PID : pid == -1 ? P_ALL : P_PGID;
	long nanoseconds = 10000;
	int before = errno;

	if (!omfs_fits)
		return omfs_next()->wait4(pid, status, options, usage);
	for (;;) {
		struct guard guard;
		pid_t result = 0;
		int error = 0;
		omfs_lock_ended(&guard);
		id_t wanted = (id_t)(pid > 0 ? pid : pid ? -pid : getpgrp());
		struct child *child = options & __WCLONE ? NULL : omfs_find_ended(type, wanted);
		if (child) {
			result = child->pid;
			if (status)
				*status = child->status;
			if (usage)
				*usage = child->usage;
			omfs_forget_ended(child);
		} else {
			result = omfs_next()->wait4(pid, status, options | WNOHANG, usage);
			error = errno;
		}
		omfs_unlock_ended(&guard);
		if (result || options & WNOHANG) {
			errno = result < 0 ? error : before;
			return result;
		}
		pause_between(&nanoseconds);
	}
}

pid_t wait(int *status)
{
	return wait4(-1, status, 0, NULL);
}

pid_t wait3(int *status, int options, struct rusage *usage)
{
	return wait4(-1, status, options, usage);
}

pid_t waitpid(pid_t pid, int *status, int options)
{
	return wait4(pid, status, options, NULL);
}

static int is_end(const siginfo_t *info)
{
	return info->si_code == CLD_EXITED || info->si_code == CLD_KILLED || info->si_code == CLD_DUMPED;
}

/* What the kernel has, without taking it; an ended child only by way of the list, because DMTCP forgets its pid. */
static int look(idtype_t type, id_t id, siginfo_t *found, int options)
{
	id_t real = type == P_ALL || !id ? id : (id_t)to_real((pid_t)id);

	for (int is_second = 0;; is_second = 1) {
		const struct child *child = options & WEXITED ? omfs_collect_ended(type, real) : NULL;
		if (child) {
			omfs_describe_ended(child, found);
			return 0;
		}
		memset(found, 0, sizeof *found);
		long result = kernel(SYS_waitid, type, (long)real, (long)found, options | WNOHANG, 0);
		if (result) {
			errno = (int)-result;
			return -1;
		}
		if (!found->si_pid || !is_end(found) || is_second) {
			found->si_pid = found->si_pid ? omfs_to_virtual(found->si_pid) : 0;
			return 0;
		}
	}
}

int waitid(idtype_t type, id_t id, siginfo_t *info, int options)
{
	long nanoseconds = 10000;
	int before = errno;

	if (!omfs_fits || (type != P_ALL && type != P_PID && type != P_PGID))
		return omfs_next()->waitid(type, id, info, options);
	for (;;) {
		struct guard guard;
		siginfo_t found = {0};
		int result = 0, error = 0;
		omfs_lock_ended(&guard);
		id_t wanted = type == P_PGID && !id ? (id_t)getpgrp() : id;
		struct child *child = options & WEXITED && !(options & __WCLONE) ? omfs_find_ended(type, wanted) : NULL;
		if (child) {
			omfs_describe_ended(child, &found);
			if (!(options & WNOWAIT))
				omfs_forget_ended(child);
		} else {
			result = options & WNOWAIT ? look(type, id, &found, options) :
						     omfs_next()->waitid(type, id, &found, options | WNOHANG);
			error = errno;
		}
		omfs_unlock_ended(&guard);
		if (result || found.si_pid || options & WNOHANG) {
			if (!result && info)
				*info = found;
			errno = result ? error : before;
			return result;
		}
		pause_between(&nanoseconds);
	}
}

void omfs_wait_in_child(void)
{
	lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}
