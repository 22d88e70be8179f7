/* A checkpoint and a restart with omfs_children.so within one process: prints what is as before for the program.
 *
 *     program thread    a SIGALRM that waits for the checkpoint thread alone, and a timer of an hour
 *     program process   a SIGALRM that waits for the process
 *     program alarm     what DMTCP's own alarm() does to a timer of an hour
 *     program child     a child that has ended, and what its parent may do to it then
 *     program late      a child that has ended, and a checkpoint while its parent gives it a group
 *     program exec      a child that the kernel takes for another program since the restart, and sets its own group
 *     program never     one that does not
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

/* Waits until a child has ended, and leaves it there. */
static void await_end(pid_t child)
{
	siginfo_t info;

	syscall(SYS_waitid, P_PID, child, &info, WEXITED | WNOWAIT, NULL);
}

static int show_late(void)
{
	pid_t child = fork();

	if (!child)
		_exit(0);
	await_end(child);
	printf("setpgid %d\n", setpgid(child, 0));
	return 0;
}

static int show_exec(const char *own, const char *what)
{
	int told[2], until_told[2];
	char byte;
	pid_t child;

	if (pipe(told) || pipe(until_told))
		return 2;
	child = fork();
	if (!child) {
		dup2(told[1], 1);
		dup2(until_told[0], 0);
		execl(own, own, what, "child", NULL);
		_exit(127);
	}
	if (read(told[0], &byte, 1) != 1)
		return 2;
	printf("before %d, ", setpgid(child, 0));
	call_hook(PRECHECKPOINT);
	call_hook(RESTART);
	if (write(until_told[1], "", 1) != 1)
		return 2;
	printf("then %d\n", setpgid(child, 0));
	kill(child, SIGKILL);
	return 0;
}

/* The child of show_exec(). */
static int sets_group(const char *what)
{
	char byte;

	if (write(1, "", 1) != 1 || read(0, &byte, 1) != 1)
		return 2;
	usleep(50000);
	if (!strcmp(what, "exec"))
		setpgid(0, 0);
	pause();
	return 0;
}

static int show_child(void)
{
	pid_t child = fork();
	int status = 0;

	if (!child)
		_exit(7);
	await_end(child);
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

	if (count_of == 3)
		return sets_group(given[1]);
	if (count_of != 2)
		return 2;
	dmtcp_initialize_plugin();
	if (!strcmp(given[1], "child"))
		return show_child();
	if (!strcmp(given[1], "late"))
		return show_late();
	if (!strcmp(given[1], "exec") || !strcmp(given[1], "never"))
		return show_exec(given[0], given[1]);
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
