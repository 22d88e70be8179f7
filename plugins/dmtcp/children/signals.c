/* Interval timers, alarm(), and the signals that wait for the process, across a checkpoint. */
#include "children.h"
#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

static struct {
	struct itimerval timers[3];
	int resend; /* bits of SENT_AGAIN */
	int has_ended;
	siginfo_t ended;		  /* for SIGCHLD */
	uintptr_t dmtcp_begin, dmtcp_end; /* of DMTCP's code */
} mine;

static const int SENT_AGAIN[] = {SIGCHLD, SIGALRM, SIGVTALRM, SIGPROF};

/* --- alarm(): DMTCP stops it before a checkpoint and starts it again afterwards, rounded to whole seconds
 *
 * That would come on top of the timer that this plug-in arms, which may have fired by then. So what DMTCP itself calls
 * does nothing.
 */

static int find_code(struct dl_phdr_info *object, size_t size, void *unused)
{
	uintptr_t own = (uintptr_t)dmtcp_get_coordinator_status, begin = 0, end = 0;

	(void)size, (void)unused;
	for (int index = 0; index < object->dlpi_phnum; index++) {
		const ElfW(Phdr) *part = object->dlpi_phdr + index;
		if (part->p_type != PT_LOAD || !(part->p_flags & PF_X))
			continue;
		begin = object->dlpi_addr + part->p_vaddr;
		end = begin + part->p_memsz;
		if (own >= begin && own < end) {
			mine.dmtcp_begin = begin;
			mine.dmtcp_end = end;
			return 1;
		}
	}
	return 0;
}

int omfs_is_dmtcp(const void *caller)
{
	return (uintptr_t)caller >= mine.dmtcp_begin && (uintptr_t)caller < mine.dmtcp_end;
}

unsigned alarm(unsigned seconds)
{
	struct itimerval timer = {{0, 0}, {0, 0}}, before = {{0, 0}, {0, 0}};

	if (omfs_is_dmtcp(__builtin_return_address(0)))
		return 0;
	timer.it_value.tv_sec = seconds;
	kernel(SYS_setitimer, ITIMER_REAL, (long)&timer, (long)&before, 0, 0);
	/* Rounded as by the C library. */
	return (unsigned)before.it_value.tv_sec +
	       (before.it_value.tv_usec >= 500000 || (before.it_value.tv_usec && !before.it_value.tv_sec));
}

void omfs_find_dmtcp(void)
{
	dl_iterate_phdr(find_code, NULL);
}

/* --- the checkpoint */

static void read_timer(int which)
{
	kernel(SYS_getitimer, which, (long)&mine.timers[which], 0, 0, 0);
}

/* The signals that wait for the process as a whole.
 *
 * sigpending(2) would add those for this thread of DMTCP's, which blocks all. It has them for good: DMTCP raises there,
 * after a restart, what was pending when the image was written. */
static uint64_t pending_signals(void)
{
	static char text[1 << 12];
	const char *line = omfs_read_small("/proc/self/status", text, sizeof text) ? strstr(text, "\nShdPnd:") : NULL;

	return line ? strtoull(line + strlen("\nShdPnd:"), NULL, 16) : 0;
}

void omfs_keep_signals(void)
{
	/* Before DMTCP stops the alarm: this plug-in is the first. Timers go on meanwhile: one whose signal is pending by now
	 * is read again, because it must not come back as both. */
	for (int which = 0; which < 3; which++)
		read_timer(which);
	uint64_t pending = pending_signals();
	for (int index = 1; index < 4; index++)
		if (pending >> (SENT_AGAIN[index] - 1) & 1)
			read_timer(index - 1);
	mine.resend = 0;
	for (int index = 0; index < 4; index++)
		mine.resend |= (int)(pending >> (SENT_AGAIN[index] - 1) & 1) << index;
	mine.has_ended = omfs_describe_last_ended(&mine.ended);
}

static void arm(int which)
{
	struct itimerval *timer = &mine.timers[which];

	/* One that has fired starts again only when its signal is delivered. */
	if (!timerisset(&timer->it_value))
		timer->it_value = timer->it_interval;
	if (timerisset(&timer->it_value))
		kernel(SYS_setitimer, which, (long)timer, 0, 0, 0);
}

void omfs_send_signals(void)
{
	long pid = kernel(SYS_getpid, 0, 0, 0, 0, 0);

	for (int which = 0; which < 3; which++)
		arm(which);
	for (int index = 0; index < 4; index++) {
		if (!(mine.resend >> index & 1))
			continue;
		if (SENT_AGAIN[index] == SIGCHLD && mine.has_ended)
			kernel(SYS_rt_sigqueueinfo, pid, SIGCHLD, (long)&mine.ended, 0, 0);
		else
			kernel(SYS_kill, pid, SENT_AGAIN[index], 0, 0, 0);
	}
}
