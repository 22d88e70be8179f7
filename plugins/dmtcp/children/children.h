/* What the parts of omfs_children.so share: DMTCP, the kernel, and what they offer each other.
 *
 * DMTCP's headers are not needed: what is used of them is declared here, and is the same from 3.0 to 4.2 (plug-in API
 * "3") and in 5.0 ("4").
 */
#ifndef OMFS_CHILDREN_H
#define OMFS_CHILDREN_H
#define _GNU_SOURCE
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>

/* From DMTCP's dmtcp.h. */
enum { PRE_EXEC = 2, POST_EXEC = 3, ATFORK_CHILD = 6, PRECHECKPOINT = 16, RESUME = 17, RESTART = 18 };

union event_data {
	struct {
		int descriptor;
	} exec;
};

struct descriptor {
	const char *api, *version, *name, *author, *email, *text;
	void (*hook)(int event, union event_data *data);
};

#define WEAK __attribute__((weak))
void dmtcp_register_plugin(struct descriptor descriptor) WEAK;
void *dmtcp_dlsym(void *handle, const char *symbol) WEAK;
int dmtcp_get_coordinator_status(int *processes, int *is_running) WEAK;
const char *dmtcp_get_tmpdir(void) WEAK;
int dmtcp_plugin_disable_ckpt(void) WEAK;
void dmtcp_plugin_enable_ckpt(void) WEAK;
pid_t dmtcp_real_to_virtual_pid(pid_t pid) WEAK; /* up to 4.x */
pid_t dmtcp_virtual_to_real_pid(pid_t pid) WEAK;
pid_t dmtcp_pid_real_to_virtual(pid_t pid) WEAK; /* 5.0 */
pid_t dmtcp_pid_virtual_to_real(pid_t pid) WEAK;

/* --- shared, and hidden from the program */

#pragma GCC visibility push(hidden)

extern int omfs_fits; /* this release of DMTCP has all that is needed */

/* What ours stands before. Found when the plug-in starts: looking it up is not for a handler, where the program may call
 * these. omfs_next() is for calls that come sooner. */
struct next {
	pid_t (*fork)(void);
	pid_t (*wait4)(pid_t, int *, int, struct rusage *);
	int (*waitid)(idtype_t, id_t, siginfo_t *, int);
	int (*setpgid)(pid_t, pid_t);
	pid_t (*getpgid)(pid_t);
	int (*kill)(pid_t, int);
};
const struct next *omfs_next(void);
void *omfs_next_function(const char *name); /* ends the process if there is none */
size_t omfs_read_small(const char *path, char *text, size_t size);

/* ended.c */
struct child {
	pid_t pid, group; /* as the program knows them */
	uid_t uid;
	int status;
	struct rusage usage;
};
pid_t omfs_to_virtual(pid_t pid);
struct child *omfs_find_ended(idtype_t type, id_t id);
void omfs_forget_ended(struct child *child);
struct child *omfs_collect_ended(idtype_t type, id_t id);
void omfs_collect_all_ended(void);
void omfs_describe_ended(const struct child *child, siginfo_t *info);
int omfs_describe_last_ended(siginfo_t *info);
int omfs_has_ended(void);
void omfs_have_no_ended(void);
void omfs_send_ended(int descriptor);
void omfs_receive_ended(int descriptor);

/* wait.c: no checkpoint, no handler (it may wait, too, or jump away), no cancellation, no other thread */
struct guard {
	sigset_t signals;
	int cancel;
};
void omfs_lock_ended(struct guard *guard);
void omfs_unlock_ended(const struct guard *guard);

/* wait.c and fork.c */
void omfs_wait_in_child(void);
void omfs_fork_in_child(void);
void omfs_fork_waits_for_all(void);

/* gone.c */
void omfs_note_restart(void);
void omfs_gone_in_child(void);

/* signals.c */
void omfs_find_dmtcp(void);
int omfs_is_dmtcp(const void *caller);
void omfs_keep_signals(void);
void omfs_send_signals(void);

/* signs.c and hold.c */
void omfs_show_reaper(void);
void omfs_show_reaper_in_child(void);
void omfs_show_restarted(void);
void omfs_stay_held(void);

#pragma GCC visibility pop

/* The kernel itself: DMTCP and we wrap what the C library offers. Returns -errno. */
static inline long kernel(long number, long a, long b, long c, long d, long e)
{
#if defined(__x86_64__)
	long result;
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
			 : "rcx", "r11", "memory");
	return result;
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	__asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
	return x0;
#else
#error "DMTCP has no other processor than x86_64 and aarch64 that this plug-in knows"
#endif
}

#endif
