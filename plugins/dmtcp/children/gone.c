/* What a program may do to a child that has ended, other than wait for it.
 *
 * To the kernel a child that a checkpoint has collected is gone, and its pid may be another process's. To the program it
 * is there until it was waited for.
 */
#include "children.h"
#include <errno.h>
#include <unistd.h>

/* Whether it is one of those; its group is set to one that is not negative, and given back. */
static int is_ended(idtype_t type, pid_t id, pid_t *group)
{
	struct guard guard;

	if (!omfs_fits || !omfs_has_ended())
		return 0;
	omfs_lock_ended(&guard);
	struct child *child = omfs_find_ended(type, (id_t)id);
	if (child && *group >= 0)
		child->group = *group ? *group : child->pid;
	if (child)
		*group = child->group;
	omfs_unlock_ended(&guard);
	return child != NULL;
}

int setpgid(pid_t pid, pid_t group)
{
	pid_t wanted = group;

	if (pid > 0 && group >= 0 && is_ended(P_PID, pid, &wanted))
		return 0;
	return omfs_next()->setpgid(pid, group);
}

pid_t getpgid(pid_t pid)
{
	pid_t group = -1;

	return pid > 0 && is_ended(P_PID, pid, &group) ? group : omfs_next()->getpgid(pid);
}

int kill(pid_t pid, int number)
{
	pid_t group = -1;
	int before = errno;

	if (omfs_is_dmtcp(__builtin_return_address(0)))
		return omfs_next()->kill(pid, number);
	if (pid > 0 && is_ended(P_PID, pid, &group))
		return 0;
	int result = omfs_next()->kill(pid, number);
	if (result && errno == ESRCH && pid < -1 && is_ended(P_PGID, -pid, &group)) {
		errno = before;
		return 0;
	}
	return result;
}
