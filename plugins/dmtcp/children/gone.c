/* What a program may do to its children, other than wait for them.
 *
 * To the kernel a child that has ended and that a checkpoint has collected is gone, and its pid may be another process's.
 * To the program it is there until it was waited for. And one that was restarted has called exec, to the kernel.
 */
#include "children.h"
#include <errno.h>
#include <time.h>
#include <unistd.h>

static int was_restarted; /* this process, since it was forked */

/* Its entry in the list, its group set to one that is not negative; NULL if it is none of those. */
static const struct child *find(idtype_t type, pid_t id, pid_t group)
{
	struct child *child = omfs_find_ended(type, (id_t)id);

	if (child && group >= 0)
		child->group = group ? group : child->pid;
	return child;
}

static int is_ended(idtype_t type, pid_t id)
{
	struct guard guard;

	if (!omfs_fits || !omfs_has_ended())
		return 0;
	omfs_lock_ended(&guard);
	int result = find(type, id, -1) != NULL;
	omfs_unlock_ended(&guard);
	return result;
}

/* A restart is an exec to the kernel: it then refuses to set a child's group (EACCES). Programs that fork set it in the
 * parent and in the child, whichever comes first; so the child is given a second. */
static int child_sets_group(pid_t child, pid_t group)
{
	struct timespec brief = {0, 5000000};

	for (int tries = 0; was_restarted && tries < 200; tries++) {
		if (getpgid(child) == group)
			return 1;
		nanosleep(&brief, NULL);
	}
	return 0;
}

/* No checkpoint may come between the look at the list and the kernel: it would move the child from one to the other. */
int setpgid(pid_t pid, pid_t group)
{
	struct guard guard;
	int result = 0, error, before = errno;

	if (!omfs_fits || pid <= 0 || group < 0)
		return omfs_next()->setpgid(pid, group);
	omfs_lock_ended(&guard);
	if (!find(P_PID, pid, group))
		result = omfs_next()->setpgid(pid, group);
	error = errno;
	omfs_unlock_ended(&guard);
	if (result && error == EACCES && child_sets_group(pid, group ? group : pid))
		result = 0;
	errno = result ? error : before;
	return result;
}

pid_t getpgid(pid_t pid)
{
	struct guard guard;

	if (!omfs_fits || pid <= 0)
		return omfs_next()->getpgid(pid);
	omfs_lock_ended(&guard);
	const struct child *child = find(P_PID, pid, -1);
	pid_t group = child ? child->group : omfs_next()->getpgid(pid);
	int error = errno;
	omfs_unlock_ended(&guard);
	errno = error;
	return group;
}

void omfs_note_restart(void)
{
	was_restarted = 1;
}

void omfs_gone_in_child(void)
{
	was_restarted = 0;
}

int kill(pid_t pid, int number)
{
	int before = errno;

	if (omfs_is_dmtcp(__builtin_return_address(0)))
		return omfs_next()->kill(pid, number);
	if (pid > 0 && is_ended(P_PID, pid))
		return 0;
	int result = omfs_next()->kill(pid, number);
	/* A checkpoint may have come in between. Not under the guard: the signal may be for this thread. */
	if (result && errno == ESRCH && (pid > 0 ? is_ended(P_PID, pid) : pid < -1 && is_ended(P_PGID, -pid))) {
		errno = before;
		return 0;
	}
	return result;
}
