/* fork() and checkpoints do not meet.
 *
 * DMTCP ends a program that forks while other processes of it are still being restarted. And a fork() that has begun
 * when its checkpoint thread leaves the state RUNNING waits for ever (up to 4.2): the coordinator does not answer a new
 * process that says it is in another state. So the checkpoint thread waits for a fork() under way, and fork() for it.
 */
#include "children.h"
#include <errno.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

static struct {
	pthread_mutex_t gate;	/* held by fork(), which a handler may call, too */
	volatile int is_closed; /* to fork(): a checkpoint has begun */
	volatile int is_new;	/* just restarted or resumed: other processes may not be */
} mine = {.gate = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP};

#define STATE_SETTER "_ZN5dmtcp11WorkerState15setCurrentStateERKNS0_12eWorkerStateE"
void set_state(const int *state) __asm__(STATE_SETTER);

void set_state(const int *state)
{
	static void (*real)(const int *);
	enum { RUNNING = 1, PRESUSPEND = 2 };

	if (!real)
		*(void **)&real = omfs_next_function(STATE_SETTER);
	if (*state == PRESUSPEND) {
		pthread_mutex_lock(&mine.gate);
		mine.is_closed = 1;
		real(state);
		pthread_mutex_unlock(&mine.gate);
	} else {
		real(state);
		mine.is_closed = mine.is_closed && *state != RUNNING;
	}
}

static int all_run(void)
{
	int processes = 0, is_running = 0, before = errno;

	dmtcp_get_coordinator_status(&processes, &is_running);
	errno = before;
	return is_running;
}

pid_t fork(void)
{
	struct timespec brief = {0, 5000000};
	pid_t child;

	for (int tries = 0; mine.is_new && tries < 6000 && !all_run(); tries++)
		nanosleep(&brief, NULL);
	mine.is_new = 0;
	for (;;) {
		pthread_mutex_lock(&mine.gate);
		if (!mine.is_closed)
			break;
		pthread_mutex_unlock(&mine.gate);
		nanosleep(&brief, NULL);
	}
	child = omfs_next()->fork();
	if (child) /* the child has a new gate: see omfs_fork_in_child() */
		pthread_mutex_unlock(&mine.gate);
	return child;
}

void omfs_fork_in_child(void)
{
	mine.gate = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
}

void omfs_fork_waits_for_all(void)
{
	mine.is_new = 1;
}
