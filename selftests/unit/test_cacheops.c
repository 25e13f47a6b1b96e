// SPDX-License-Identifier: GPL-2.0-only
/*
 * The cache operations touch each line of a range once, in order, and no
 * other, by the instruction they are named after: compiled by gcc and clang at
 * -O0 to -O3.
 *
 * How it is seen on x86-64: the range lies in memory that may not be accessed,
 * so each such instruction faults; the handler notes the address and the bytes
 * of the instruction and steps over it. MFENCE does not fault: it is looked for
 * by single steps.
 *
 * On arm64: each such instruction of the program is replaced by a breakpoint,
 * whose handler notes the register's value, since an emulated CPU may leave
 * them out and has no single steps.
 */
#include "internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#ifdef __aarch64__
#include <link.h>
#include <sys/auxv.h>
#endif

#define REGION 16384

static uint8_t *region;

struct touch {
	uintptr_t addr;
	const char *name;	/* NULL: something else, e.g. a load */
};

static struct touch touches[REGION / 16 + 8];
static size_t nr_touches;
static size_t line_size = 64;

#ifdef __x86_64__

/* The length of a cache instruction at p, 0 if there is none. */
static size_t decode(const uint8_t *p, const char **name)
{
	bool prefix = *p == 0x66;
	const uint8_t *start = p;
	unsigned int mod, reg, rm;

	p += prefix;
	if ((*p & 0xf0) == 0x40)	/* REX */
		p++;
	if (p[0] != 0x0f || p[1] != 0xae)
		return 0;
	p += 2;
	mod = *p >> 6;
	reg = *p >> 3 & 7;
	rm = *p & 7;
	p++;
	if (mod == 3 || reg < 6 || (reg == 6 && !prefix))
		return 0;
	*name = reg == 6 ? "clwb" : prefix ? "clflushopt" : "clflush";
	if (rm == 4) {			/* SIB */
		if (mod == 0 && (*p & 7) == 5)
			p += 4;
		p++;
	} else if (mod == 0 && rm == 5) {
		p += 4;
	}
	p += mod == 1 ? 1 : mod == 2 ? 4 : 0;
	return (size_t)(p - start);
}

static void on_segv(int sig, siginfo_t *si, void *context)
{
	greg_t *rip = &((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
	const char *name = NULL;
	size_t len = decode((const uint8_t *)*rip, &name);

	if (nr_touches == TARN_ARRAY_SIZE(touches) || !len) {
		signal(sig, SIG_DFL);	/* not ours: let it die */
		return;
	}
	touches[nr_touches].addr = (uintptr_t)si->si_addr;
	touches[nr_touches++].name = name;
	*rip += (greg_t)len;
}

/* ---- MFENCE ---- */

static volatile bool stepping;
static volatile unsigned int fences;

static void on_step(int sig, siginfo_t *si, void *context)
{
	mcontext_t *m = &((ucontext_t *)context)->uc_mcontext;
	const uint8_t *p = (const uint8_t *)m->gregs[REG_RIP];

	(void)sig;
	(void)si;
	if (p[0] == 0x0f && p[1] == 0xae && p[2] == 0xf0)
		fences++;
	if (!stepping)
		m->gregs[REG_EFL] &= ~0x100;
}

static void begin_steps(int sig, siginfo_t *si, void *context)
{
	(void)sig;
	(void)si;
	((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] |= 0x100;
}

static unsigned int count_fences(void (*fn)(void))
{
	fences = 0;
	stepping = true;
	raise(SIGUSR1);
	fn();
	stepping = false;
	return fences;
}

static void arm(const struct tarn_cacheops *ops)
{
	(void)ops;
}

static void handle(void)
{
	struct sigaction sa = { .sa_flags = SA_SIGINFO };

	sa.sa_sigaction = on_segv;
	sigaction(SIGSEGV, &sa, NULL);
	sa.sa_sigaction = on_step;
	sigaction(SIGTRAP, &sa, NULL);
	sa.sa_sigaction = begin_steps;
	sigaction(SIGUSR1, &sa, NULL);
}

#define COMPILERS "gcc", "clang"

#else /* arm64 */

/*
 * Encodings: Arm Architecture Reference Manual, DDI 0487. The last five bits are the register.
 * Without DC CVAU, of which __builtin___clear_cache() is made. Not const: constants may lie among
 * the code, where they would be taken for instructions.
 */
static struct {
	uint32_t code;
	uint32_t mask;
	const char *name;	/* NULL: the fence */
} codes[] = {
	{ 0xd50b7a20, ~31U, "dc cvac" },
	{ 0xd50b7c20, ~31U, "dc cvap" },
	{ 0xd50b7d20, ~31U, "dc cvadp" },
	{ 0xd50b7e20, ~31U, "dc civac" },
	{ 0xd5087620, ~31U, "dc ivac" },
	{ 0xd5033f9f, ~0U, NULL },	/* dsb sy; a weaker one does not count */
};

#define BRK	0xd4200000U		/* with a number << 5 */
#define NR_BRK	4096

static struct {
	unsigned int code;		/* which of the above */
	unsigned int reg;
} breaks[NR_BRK];
static unsigned int nr_breaks;
static unsigned int fences;

static void on_break(int sig, siginfo_t *si, void *context)
{
	mcontext_t *m = &((ucontext_t *)context)->uc_mcontext;
	uint32_t insn = *(const uint32_t *)m->pc;
	unsigned int n = insn >> 5 & 0xffff;

	(void)si;
	if ((insn & ~(0xffffU << 5)) != BRK || n >= nr_breaks) {
		signal(sig, SIG_DFL);
		return;
	}
	if (!codes[breaks[n].code].name) {
		fences++;
	} else {
		if (nr_touches == TARN_ARRAY_SIZE(touches)) {
			signal(sig, SIG_DFL);
			return;
		}
		touches[nr_touches].addr = breaks[n].reg == 31 ? 0 : m->regs[breaks[n].reg];
		touches[nr_touches++].name = codes[breaks[n].code].name;
	}
	m->pc += 4;
}

/* The segment of code that holds a function: all of its cache instructions become breakpoints. */
static int arm_segment(struct dl_phdr_info *info, size_t size, void *fn)
{
	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
		uintptr_t start = info->dlpi_addr + ph->p_vaddr, end = start + ph->p_memsz;
		uintptr_t page = start & ~4095UL;

		if (ph->p_type != PT_LOAD || !(ph->p_flags & PF_X) || (uintptr_t)fn - start >= ph->p_memsz)
			continue;
		assert_int_equal(mprotect((void *)page, end - page, PROT_READ | PROT_WRITE | PROT_EXEC), 0);
		for (uint32_t *p = (uint32_t *)((start + 3) & ~3UL); (uintptr_t)(p + 1) <= end; p++) {
			for (unsigned int c = 0; c < TARN_ARRAY_SIZE(codes); c++) {
				if ((*p & codes[c].mask) != codes[c].code)
					continue;
				assert_true(nr_breaks < NR_BRK);
				breaks[nr_breaks].code = c;
				breaks[nr_breaks].reg = *p & 31;
				*p = BRK | nr_breaks++ << 5;
				break;
			}
		}
		__builtin___clear_cache((char *)start, (char *)end);
		return 1;
	}
	return 0;
}

static void arm(const struct tarn_cacheops *ops)
{
	uint64_t ctr;

	assert_int_equal(dl_iterate_phdr(arm_segment, (void *)ops->writeback), 1);
	__asm__("mrs %0, ctr_el0" : "=r" (ctr));
	line_size = 4UL << (ctr >> 16 & 15);
	/* that of the CPU the test runs on, where tools/arm64 says it */
	if (getenv("TARN_TEST_LINE"))
		assert_int_equal(line_size, atoi(getenv("TARN_TEST_LINE")));
}

static unsigned int count_fences(void (*fn)(void))
{
	fences = 0;
	fn();
	return fences;
}

static void handle(void)
{
	struct sigaction sa = { .sa_flags = SA_SIGINFO, .sa_sigaction = on_break };

	sigaction(SIGTRAP, &sa, NULL);
}

#define COMPILERS "aarch64-linux-gnu-gcc"

#endif

static void nothing(void)
{
}

static void check_range(void (*op)(const void *addr, size_t len), const char *name, size_t at,
			size_t len)
{
	uintptr_t first = (uintptr_t)(region + at) & ~(line_size - 1);
	uintptr_t end = (uintptr_t)(region + at) + len;
	size_t n = 0;

	nr_touches = 0;
	op(region + at, len);
	for (uintptr_t line = first; len && line < end; line += line_size, n++) {
		if (n >= nr_touches)
			fail_msg("%s of %zu+%zu: line %zu was not touched", name, at, len, n);
		assert_string_equal(touches[n].name, name);
		/* which byte of the line is the compiler's business */
		assert_int_equal(touches[n].addr & ~(line_size - 1), line);
	}
	assert_int_equal(nr_touches, n);
}

/* ---- the sets ---- */

static void check_set(const struct tarn_cacheops *ops)
{
	static const size_t at[] = { 0, 1, 31, 63, 64, 65, 4095, 4096 - 64 };
	static const size_t len[] = { 0,   1,	2,   62,   63,	 64,   65,  66,
				      127, 128, 129, 4095, 4096, 4097, 8000 };

	for (size_t i = 0; i < TARN_ARRAY_SIZE(at); i++) {
		for (size_t j = 0; j < TARN_ARRAY_SIZE(len); j++) {
			check_range(ops->writeback, ops->writeback_name, at[i], len[j]);
			check_range(ops->invalidate, ops->invalidate_name, at[i], len[j]);
		}
	}
	assert_int_equal(count_fences(nothing), 0);
	assert_int_equal(count_fences(ops->fence), 1);
}

/* Within the test, since cmocka sets its own signal handlers just before it. */
static void begin(void)
{
	if (!region)
		region = mmap(NULL, REGION, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(region != MAP_FAILED);
	handle();
}

/* The sets as this program was compiled, each that the CPU has. */
static void as_compiled_here(void **state)
{
	size_t n = 0;

	(void)state;
	begin();
	arm(tarn_cacheops_nth(0));
	for (; tarn_cacheops_nth(n); n++)
		check_set(tarn_cacheops_nth(n));
	assert_true(n);
	assert_int_equal(count_fences(tarn_mfence), 1);
}

/* Compiles cacheops.c alone, and tests what came out; false: no such compiler. */
static bool check_build(const char *compiler, const char *level)
{
	char dir[] = "/tmp/tarn-cacheops-XXXXXX", command[1024], so[64];
	const struct tarn_cacheops *(*nth)(size_t n);
	void *handle;
	size_t n = 0;

	snprintf(command, sizeof(command), "command -v %s >/dev/null", compiler);
	if (system(command))
		return false;
	assert_non_null(mkdtemp(dir));
	snprintf(so, sizeof(so), "%s/cacheops.so", dir);
	snprintf(command, sizeof(command),
		 "%s -std=gnu11 %s -fPIC -shared %s -o %s %s/user/lib/cacheops.c", compiler, level,
		 getenv("TARN_TEST_CFLAGS") ?: "", so, TARN_TOP);
	if (system(command))
		fail_msg("%s", command);
	handle = dlopen(so, RTLD_NOW | RTLD_LOCAL);
	if (!handle)
		fail_msg("%s", dlerror());
	*(void **)&nth = dlsym(handle, "tarn_cacheops_nth");
	assert_non_null(nth);
	arm(nth(0));
	for (; nth(n); n++)
		check_set(nth(n));
	assert_true(n);
	dlclose(handle);
	unlink(so);
	rmdir(dir);
	return true;
}

static void every_level(void **state)
{
	static const char *const compilers[] = { COMPILERS };
	static const char *const levels[] = { "-O0", "-O1", "-O2", "-O3" };
	unsigned int builds = 0;

	(void)state;
	begin();
	for (size_t c = 0; c < TARN_ARRAY_SIZE(compilers); c++)
		for (size_t l = 0; l < TARN_ARRAY_SIZE(levels); l++)
			builds += check_build(compilers[c], levels[l]);
	assert_true(builds);
}

/* The best that /proc/cpuinfo, or the auxiliary vector, tells of. */
static void best_of_the_cpu(void **state)
{
#ifdef __aarch64__
	bool pop = getauxval(AT_HWCAP) & 1 << 16;

	(void)state;
	if (getenv("TARN_TEST_DCPOP"))
		assert_int_equal(pop, atoi(getenv("TARN_TEST_DCPOP")));
	assert_string_equal(tarn_cacheops()->writeback_name, pop ? "dc cvap" : "dc cvac");
	assert_string_equal(tarn_cacheops()->invalidate_name, "dc civac");
#else
	char line[8192] = "";
	FILE *f = fopen("/proc/cpuinfo", "re");

	(void)state;
	assert_non_null(f);
	while (fgets(line, sizeof(line), f) && strncmp(line, "flags", 5))
		;
	fclose(f);
	assert_string_equal(tarn_cacheops()->writeback_name, strstr(line, " clwb") ? "clwb" :
			    strstr(line, " clflushopt") ? "clflushopt" : "clflush");
	assert_string_equal(tarn_cacheops()->invalidate_name,
			    strstr(line, " clflushopt") ? "clflushopt" : "clflush");
#endif
	assert_ptr_equal(tarn_cacheops(), tarn_cacheops_nth(0));
	assert_null(tarn_cacheops_nth(99));
}

static void machines_refused(void **state)
{
	struct tarn_err err = { "" };

	(void)state;
	assert_int_equal(tarn_machine_fits(4096, 64, &err), 0);
	assert_int_equal(tarn_machine_fits(4096, 32, &err), 0);
	assert_string_equal(err.text, "");
	assert_int_equal(tarn_machine_fits(65536, 64, &err), -EOPNOTSUPP);
	assert_non_null(strstr(err.text, "pages are 65536 bytes and tarnfs works with 4096 only"));
	assert_int_equal(tarn_machine_fits(4096, 128, &err), -EOPNOTSUPP);
	assert_non_null(strstr(err.text, "write 128 bytes back at once and tarnfs shares memory by 64"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(as_compiled_here),
		cmocka_unit_test(every_level),
		cmocka_unit_test(best_of_the_cpu),
		cmocka_unit_test(machines_refused),
	};

	return cmocka_run_group_tests_name("cacheops", tests, NULL, NULL);
}
