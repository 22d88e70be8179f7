/*
 * Options of omfs-daemon for sbatch, salloc and srun: how a job can be preempted, and what warns it; where its
 * checkpoints are; how long it runs before it may be preempted; what slowdown is enough for a real-time job
 * (docs/plugins.md). Checked at submit, shown in --help, and passed on:
 *
 *   to omfs-run       OMFS_METHOD (the first that it knows) and OMFS_CKPT_DIR in the job's environment
 *   to the daemon     through the "job control environment" of SPANK, which job_submit.lua reads and puts into the
 *                     job's comment as omfs:method=..., omfs:exclude=..., omfs:signal=NAME,
 *                     omfs:min_runtime=SECONDS and omfs:bound=NUMBER
 *
 * job_submit.lua checks which methods the site offers, how long a job may ask for, and that its bound is a loose one.
 * Users can write the comment and the environment by hand as well, so no option gives more than that. Without an option
 * nothing is changed. Nothing in here ends a job or a step: on the node, wrong values are ignored.
 */
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <slurm/spank.h>

SPANK_PLUGIN(omfs, 1)

enum { METHOD, CKPT_DIR, MIN_RUNTIME, BOUND, EXCLUDE, SIGNAL, OPTIONS };

/* Methods of omfs-run (NAMES in omfs_daemon/omfs_run/driver_table.py); the others need nothing inside the job. */
static const char *const LAUNCHED[] = { "dmtcp", "criu", "application" };

/* Signals that can warn a job (SIGNALS in omfs_daemon/protocol/job_comment.py), or none. */
static const char *const SIGNALS[] = { "HUP", "INT", "QUIT", "TERM", "USR1", "USR2" };

#define LONGEST_METHODS 255 /* bytes of a list of methods */
#define LONGEST_NUMBER 8    /* digits of a number in a time: sums stay far below what fits */
#define MOST_DIGITS 6       /* of a slowdown, before and after the point */
#define CONTROL "SLURM_SPANK_" /* before the name of what is in the job control environment, in a batch job's */

static const char *const VARIABLES[OPTIONS] = { "OMFS_METHOD", "OMFS_CKPT_DIR", "OMFS_MIN_RUNTIME",
						 "OMFS_BOUND",	"OMFS_EXCLUDE",	 "OMFS_SIGNAL" };

/* The user's values, checked; the time in seconds. */
static char *given[OPTIONS];

static bool is_method_list(const char *text)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
	const char *word = text;

	if (strlen(text) > LONGEST_METHODS)
		return false;
	for (;;) {
		size_t length = strspn(word, letters);

		if (length == 0)
			return false;
		if (word[length] == '\0')
			return true;
		if (word[length] != ',')
			return false;
		word += length + 1;
	}
}

/* As Slurm's own --signal: "B:" before the name for the batch shell alone. */
static bool is_signal(const char *text)
{
	if (strcmp(text, "none") == 0)
		return true;
	if (strncmp(text, "B:", 2) == 0)
		text += 2;
	for (size_t i = 0; i < sizeof(SIGNALS) / sizeof(SIGNALS[0]); i++)
		if (strcmp(text, SIGNALS[i]) == 0)
			return true;
	return false;
}

static bool is_directory_name(const char *text)
{
	if (text[0] != '/' || strlen(text) >= PATH_MAX)
		return false;
	for (const char *at = text; *at != '\0'; at++)
		if ((unsigned char)*at < ' ' || *at == 0x7f)
			return false;
	return true;
}

/* The number at "at", which moves on behind it and behind the character after it, which is put into "end". -1: none. */
static long long number(const char **at, char *end)
{
	size_t digits = strspn(*at, "0123456789");
	long long value = 0;

	if (digits == 0 || digits > LONGEST_NUMBER)
		return -1;
	for (size_t i = 0; i < digits; i++)
		value = 10 * value + ((*at)[i] - '0');
	*end = (*at)[digits];
	*at += digits + (*end != '\0');
	return value;
}

/*
 * Seconds of a time as Slurm writes it (sbatch(1), --time): minutes, minutes:seconds, hours:minutes:seconds,
 * days-hours, days-hours:minutes, days-hours:minutes:seconds. -1 if it is none.
 */
static long long seconds_of(const char *text)
{
	long long days = 0, parts[3] = { 0, 0, 0 };
	int count = 0;
	bool with_days = false;
	char end;

	do {
		long long value = number(&text, &end);

		if (value < 0 || count == 3)
			return -1;
		if (end == '-' && count == 0 && !with_days) {
			days = value;
			with_days = true;
		} else if (end == ':' || end == '\0') {
			parts[count++] = value;
		} else {
			return -1;
		}
	} while (end != '\0');
	if (with_days)
		return 86400 * days + 3600 * parts[0] + 60 * parts[1] + parts[2];
	if (count == 3)
		return 3600 * parts[0] + 60 * parts[1] + parts[2];
	return 60 * parts[0] + parts[1];
}

/* A number of at least 1 in plain digits, as omfsd reads it (omfs_daemon/protocol/job_comment.py). */
static bool is_slowdown(const char *text)
{
	size_t whole = strspn(text, "0123456789"), part;

	if (whole == 0 || whole > MOST_DIGITS)
		return false;
	if (text[whole] == '\0')
		return strspn(text, "0") < whole;
	part = strspn(text + whole + 1, "0123456789");
	return text[whole] == '.' && part > 0 && part <= MOST_DIGITS && text[whole + 1 + part] == '\0' &&
	       strspn(text, "0") < whole;
}

/* Keeps a valid value in "given"; false for an invalid one (see ALLOWED). */
static bool take(int option, const char *text)
{
	char seconds[32];

	switch (option) {
	case METHOD:
	case EXCLUDE:
		if (!is_method_list(text))
			return false;
		break;
	case SIGNAL:
		if (!is_signal(text))
			return false;
		break;
	case CKPT_DIR:
		if (!is_directory_name(text))
			return false;
		break;
	case BOUND:
		if (!is_slowdown(text))
			return false;
		break;
	case MIN_RUNTIME: {
		long long value = seconds_of(text);

		if (value <= 0)
			return false;
		snprintf(seconds, sizeof(seconds), "%lld", value);
		text = seconds;
		break;
	}
	default:
		return false;
	}
	free(given[option]);
	given[option] = strdup(text);
	return given[option] != NULL;
}

static int option_given(int option, const char *argument, int remote);

static struct spank_option options[OPTIONS] = {
	{ "omfs-method", "NAME[,NAME...]",
	  "how omfsd may preempt the job, best first (requeue, suspend, dmtcp, ...)", 1, METHOD, option_given },
	{ "omfs-ckptdir", "DIR",
	  "absolute directory below which omfs-run keeps the job's checkpoints", 1, CKPT_DIR, option_given },
	{ "omfs-min-runtime", "TIME",
	  "run at least so long before being preempted (as --time)", 1, MIN_RUNTIME, option_given },
	{ "omfs-bound", "NUMBER",
	  "the slowdown that is enough for a real-time job, if more than its class promises", 1, BOUND, option_given },
	{ "omfs-exclude", "NAME[,NAME...]",
	  "how omfsd may not preempt the job, whatever its class allows (suspend, ...)", 1, EXCLUDE, option_given },
	{ "omfs-signal", "[B:]NAME",
	  "warn the job before it is requeued, by this signal to its steps (B: its batch shell)", 1, SIGNAL,
	  option_given },
};

static const char *const ALLOWED[OPTIONS] = {
	"must be names of a-z, 0-9 and _, with commas between them",
	"must be an absolute path without control characters",
	"must be a time above 0: minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes or "
	"days-hours:minutes:seconds",
	"must be a number of at least 1, with at most six digits before and after the point",
	"must be names of a-z, 0-9 and _, with commas between them",
	"must be none, or HUP, INT, QUIT, TERM, USR1 or USR2, after B: for the batch shell",
};

static int option_given(int option, const char *argument, int remote)
{
	if (option < 0 || option >= OPTIONS)
		return ESPANK_BAD_ARG;
	if (argument != NULL && take(option, argument))
		return ESPANK_SUCCESS;
	if (!remote)
		slurm_error("omfs: --%s: %s", options[option].name, ALLOWED[option]);
	return ESPANK_BAD_ARG;
}

int slurm_spank_init(spank_t spank, int count, char **arguments)
{
	(void)count, (void)arguments;
	switch (spank_context()) {
	case S_CTX_LOCAL:
	case S_CTX_ALLOCATOR:
	case S_CTX_REMOTE:
		for (int option = 0; option < OPTIONS; option++)
			if (spank_option_register(spank, &options[option]) != ESPANK_SUCCESS)
				slurm_error("omfs: --%s cannot be offered", options[option].name);
		break;
	default:
		break;
	}
	return ESPANK_SUCCESS;
}

/* What stands in the job's environment for an option that was given; NULL if the variable must not be there. */
static const char *for_job(int option)
{
	if (option == CKPT_DIR)
		return given[CKPT_DIR];
	if (option != METHOD)
		return NULL;
	for (const char *word = given[METHOD];; word++) {
		size_t length = strcspn(word, ",");

		for (size_t i = 0; i < sizeof(LAUNCHED) / sizeof(LAUNCHED[0]); i++)
			if (strlen(LAUNCHED[i]) == length && strncmp(word, LAUNCHED[i], length) == 0)
				return LAUNCHED[i];
		word += length;
		if (*word == '\0')
			return NULL;
	}
}

/* In sbatch, salloc, srun: what job_submit.lua reads, and the environment that they pass on. */
static void hand_on(spank_t spank)
{
	for (int option = 0; option < OPTIONS; option++) {
		const char *value;

		if (given[option] == NULL)
			continue;
		value = for_job(option);
		if ((value ? setenv(VARIABLES[option], value, 1) : unsetenv(VARIABLES[option])) != 0 ||
		    spank_job_control_setenv(spank, VARIABLES[option], given[option], 1) != ESPANK_SUCCESS)
			slurm_error("omfs: --%s cannot be handed on", options[option].name);
	}
}

/*
 * On the node: whatever of the user's environment was passed on (--export), these are in the job's. Of a batch job with
 * --export=NONE Slurm 22.05 keeps no options, but the job control environment.
 */
static void set_environment(spank_t spank)
{
	char name[64], text[PATH_MAX];

	for (int option = 0; option < OPTIONS; option++) {
		const char *value;

		snprintf(name, sizeof(name), CONTROL "%s", VARIABLES[option]);
		if (given[option] == NULL && (option == METHOD || option == CKPT_DIR) &&
		    spank_getenv(spank, name, text, sizeof(text)) == ESPANK_SUCCESS)
			(void)take(option, text);
		if (given[option] == NULL)
			continue;
		value = for_job(option);
		if (value != NULL)
			(void)spank_setenv(spank, VARIABLES[option], value, 1);
		else
			(void)spank_unsetenv(spank, VARIABLES[option]);
	}
}

int slurm_spank_init_post_opt(spank_t spank, int count, char **arguments)
{
	(void)count, (void)arguments;
	switch (spank_context()) {
	case S_CTX_LOCAL:
	case S_CTX_ALLOCATOR:
		hand_on(spank);
		break;
	case S_CTX_REMOTE:
		set_environment(spank);
		break;
	default:
		break;
	}
	return ESPANK_SUCCESS;
}
