/* Shapes that are best written in C: `shapes NAME`. As in stepping.py: steps are counted into `out`, a fault that the
 * program finds itself goes to the file `fault` with exit code 90, and the program ends when there is a file `finish`.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void must(int holds, const char *what)
{
	if (holds)
		return;
	int file = open("fault", O_WRONLY | O_CREAT | O_APPEND, 0600);
	dprintf(file, "%s\n", what);
	_exit(90);
}

static int is_finished(void)
{
	return access("finish", F_OK) == 0;
}

static void rest(void)
{
	struct timespec left = {0, 20000000};
	while (nanosleep(&left, &left))
		;
}

static int out = -1;

/* Count one step; whether there are more. */
static int step(void)
{
	static long number;
	if (out < 0)
		out = open("out", O_WRONLY | O_CREAT | O_APPEND, 0600);
	dprintf(out, "%ld\n", ++number);
	rest();
	return !is_finished();
}

static int plain(void)
{
	while (step())
		;
	return 7;
}

/* Small pieces that the heap grows for, by brk. */
static int heap(void)
{
	enum { MOST = 20000 };
	static long *pieces[MOST];
	long count = 0;
	do {
		for (int more = 0; more < 100 && count < MOST; more++, count++) {
			pieces[count] = malloc(1000);
			pieces[count][0] = count;
			pieces[count][124] = ~count;
		}
		for (long at = 0; at < count; at++)
			must(pieces[at][0] == at && pieces[at][124] == ~at, "the heap has changed");
	} while (step());
	return 7;
}

/* Mappings that are made and given back. */
static int mappings(void)
{
	enum { MOST = 40, SIZE = 1 << 20 };
	static long *kept[MOST];
	long turn = 0;
	do {
		long **one = &kept[turn % MOST];
		if (*one) {
			must((*one)[0] == turn - MOST && (*one)[SIZE / sizeof(long) - 1] == turn - MOST, "a mapping has changed");
			munmap(*one, SIZE);
		}
		*one = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		must(*one != MAP_FAILED, "mmap fails");
		(*one)[0] = (*one)[SIZE / sizeof(long) - 1] = turn++;
	} while (step());
	return 7;
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static long asked, answered;

static void *answer(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&mutex);
	while (asked >= 0) {
		if (answered < asked) {
			answered++;
			pthread_cond_broadcast(&changed);
		}
		pthread_cond_wait(&changed, &mutex);
	}
	pthread_mutex_unlock(&mutex);
	return NULL;
}

/* Threads that wake each other. */
static int threads(void)
{
	pthread_t thread;
	pthread_create(&thread, NULL, answer, NULL);
	do {
		pthread_mutex_lock(&mutex);
		asked++;
		pthread_cond_broadcast(&changed);
		while (answered < asked)
			pthread_cond_wait(&changed, &mutex);
		must(answered == asked, "a thread has lost a turn");
		pthread_mutex_unlock(&mutex);
	} while (step());
	pthread_mutex_lock(&mutex);
	asked = -1;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&mutex);
	pthread_join(thread, NULL);
	return 7;
}

/* Loops of OpenMP on two threads. */
static int openmp(void)
{
	do {
		long sum = 0;
		#pragma omp parallel for num_threads(2) reduction(+ : sum)
		for (long at = 0; at < 100000; at++)
			sum += at;
		must(sum == 4999950000L, "a wrong sum");
	} while (step());
	return 7;
}

struct shared {
	sem_t ask, answer;
	long number;
};

/* A child, with memory and semaphores that both share. */
static int with_child(struct shared *both)
{
	must(sem_init(&both->ask, 1, 0) == 0 && sem_init(&both->answer, 1, 0) == 0, "sem_init fails");
	pid_t child = fork();
	if (child == 0) {
		for (;;) {
			while (sem_wait(&both->ask))
				;
			if (both->number < 0)
				_exit(5);
			both->number *= 2;
			sem_post(&both->answer);
		}
	}
	long turn = 0;
	do {
		both->number = ++turn;
		sem_post(&both->ask);
		while (sem_wait(&both->answer))
			;
		must(both->number == 2 * turn, "a wrong answer");
	} while (step());
	both->number = -1;
	sem_post(&both->ask);
	int status;
	must(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 5, "a child is lost");
	return 7;
}

static int semaphores(void)
{
	return with_child(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
}

static int system_v(void)
{
	int segment = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
	struct shared *both = shmat(segment, NULL, 0);
	must(both != (void *)-1, "shmat fails");
	int code = with_child(both);
	shmctl(segment, IPC_RMID, NULL);
	return code;
}

/* A stream of stdio, whose buffer is written only when it is full. */
static int buffered(void)
{
	FILE *file = fopen("buffered", "w");
	long count = 0;
	do
		fprintf(file, "%ld\n", ++count);
	while (step());
	must(fclose(file) == 0, "the stream cannot be written");
	file = fopen("buffered", "r");
	long number, seen = 0;
	while (fscanf(file, "%ld", &number) == 1)
		must(number == ++seen, "a gap or a repeat in a stream");
	must(seen == count, "the end of a stream is missing");
	return 7;
}

/* Files of mkstemp(3) and tmpfile(3), here those for large files. */
static int temporary(void)
{
	char path[] = "temporary-XXXXXX";
	int file = mkstemp(path);
	FILE *unnamed = tmpfile();
	long turn = 0, number;
	must(file >= 0 && unnamed, "cannot be made");
	do {
		must(pread(file, &number, sizeof number, 0) == (turn ? (int)sizeof number : 0), "a file is lost");
		must(!turn || number == turn, "a file has changed");
		rewind(unnamed);
		must(!turn || (fscanf(unnamed, "%ld", &number) == 1 && number == turn), "a file has changed");
		must(pwrite(file, &(long){++turn}, sizeof turn, 0) == (int)sizeof turn, "cannot write");
		rewind(unnamed);
		fprintf(unnamed, "%ld\n", turn);
		fflush(unnamed);
	} while (step());
	unlink(path);
	return 7;
}

int main(int count, char **arguments)
{
	static const struct { const char *name; int (*run)(void); } table[] = {
		{"plain", plain}, {"heap", heap}, {"mappings", mappings}, {"threads", threads}, {"openmp", openmp},
		{"semaphores", semaphores}, {"system v", system_v}, {"buffered", buffered},
		{"temporary", temporary},
	};
	for (size_t at = 0; count > 1 && at < sizeof(table) / sizeof(*table); at++)
		if (!strcmp(arguments[1], table[at].name))
			return table[at].run();
	return 2;
}
