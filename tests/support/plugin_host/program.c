/* A checkpoint and a restart with omfs_children.so within one process: prints what is as before for the program.
 *
 *     program thread    a SIGALRM that waits for the checkpoint thread alone, and a timer of an hour
 *     program process   a SIGALRM that waits for the process
 *     program alarm     what DMTCP's own alarm() does to a timer of an hour
 *     program child     a child that has ended, and what its parent may do to it then
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PRECHECKPOINT = 16, RESTART = 18 };

void call_hook(int event);
void stop_alarm(void);
void dmtcp_initialize_plugin(void);

static volatile sig_atomic_t signals;

static void count(int number) { (void)number; signals++; }

static void set_timer(long seconds)
{
	struct itimerval timer = {.it_value = {.tv_sec = seconds}};

	setitimer(ITIMER_REAL, &timer, NULL);
}

static void *checkpoint(void *what)
{
	sigset_t alarms;
	int number;

	sigemptyset(&alarms);
	sigaddset(&alarms, SIGALRM);
	if (!strcmp(what, "thread"))
		pthread_kill(pthread_self(), SIGALRM);
	if (!strcmp(what, "process"))
		kill(getpid(), SIGALRM);
	else
		set_timer(3600);
	call_hook(PRECHECKPOINT);
	if (!strcmp(what, "process"))
		sigwait(&alarms, &number); /* a new process has no signal that waits */
	if (!strcmp(what, "alarm"))
		stop_alarm();
	else
		set_timer(0); /* and no timer */
	call_hook(RESTART);
	return NULL;
}

static int show_child(void)
{
	siginfo_t info;
	pid_t child = fork();
	int status = 0;

	if (!child)
		_exit(7);
	syscall(SYS_waitid, P_PID, child, &info, WEXITED | WNOWAIT, NULL);
	call_hook(PRECHECKPOINT);
	call_hook(RESTART);
	printf("setpgid %d, ", setpgid(child, 0));
	printf("group %s, ", getpgid(child) == child ? "its own" : "not its own");
	printf("kill %d %d, ", kill(child, SIGTERM), kill(-child, 0));
	const char *waited = waitpid(-child, &status, 0) == child ? "ended" : "failed";
	printf("wait %s %d, ", waited, WEXITSTATUS(status));
	printf("gone %d %d %d\n", setpgid(child, 0), (int)getpgid(child), kill(child, 0));
	return 0;
}

int main(int count_of, char **given)
{
	struct sigaction action = {.sa_handler = count};
	struct itimerval timer;
	pthread_t thread;
	sigset_t all, before;

	if (count_of != 2)
		return 2;
	dmtcp_initialize_plugin();
	if (!strcmp(given[1], "child"))
		return show_child();
	sigaction(SIGALRM, &action, NULL);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_create(&thread, NULL, checkpoint, given[1]);
	pthread_join(thread, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	getitimer(ITIMER_REAL, &timer);
	printf("%d signals, timer %s\n", (int)signals, timer.it_value.tv_sec ? "set" : "off");
	return 0;
}
