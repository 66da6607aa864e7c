/* A crew of threads that run routines of the other libraries.
 *
 * A kernel on one small structure takes tens of microseconds, and there are a hundred of them in a
 * step of molecular dynamics. A thread that waits therefore looks out for work a while before it
 * sleeps, and the caller never waits for one that has not begun: pieces of the work are taken from
 * a counter, so that the others have done all of them.
 *
 * There is one crew a process. A caller that finds it at work, in another thread, works alone. */

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

enum { MAX_ARGUMENTS = 24, MAX_HELPERS = 255 };
/* Of a thread that waits: some 20 to 50 us, as OpenMP's threads are told to (pipeline_core.cli). */
enum { TURNS = 2000, TURNS_OF_ONE = 64 };
/* Bytes that a thread keeps for its next call: the system hands over new ones page by page. */
enum { MAX_KEPT = 1 << 26, ALIGNMENT = 64 };

/* What one argument more or less makes no difference to: the calling conventions of x86-64 and of
 * AArch64 leave to the caller what it has passed, in registers or in words of the stack. */
typedef void Routine(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                     int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                     int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                     int64_t, int64_t);

/* A call: the routine takes the arguments, the address of the counter and, unless `n_bytes` is 0,
 * that of memory of the thread's own. */
typedef struct {
    Routine *routine;
    int64_t n_arguments, n_bytes;
    int64_t arguments[MAX_ARGUMENTS];
} Call;

typedef enum { IDLE, CALLED, AT_WORK } State;

typedef struct {
    _Alignas(128) _Atomic State state;
    atomic_int asleep;
    pthread_mutex_t lock;
    pthread_cond_t wake;
} Helper;

typedef struct {
    void *bytes;
    int64_t size;
} Memory;

static Helper helpers[MAX_HELPERS];
static int n_helpers;          /* that have been started */
static atomic_flag at_work = ATOMIC_FLAG_INIT;
static const Call *call;       /* of the crew, while it is at work */
static int64_t *pieces;        /* the counter of that call */
static _Thread_local Memory kept;
static pthread_key_t thread_end;

static void relax(int turn)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
    if (turn % TURNS_OF_ONE == TURNS_OF_ONE - 1)
        sched_yield(); /* there may be more threads than cores */
}

/* ---- memory of a thread ---- */

static void *take_memory(int64_t n_bytes)
{
    if (n_bytes <= kept.size)
        return kept.bytes;
    int64_t size = (n_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    void *bytes = aligned_alloc(ALIGNMENT, size);
    if (bytes && n_bytes <= MAX_KEPT) {
        free(kept.bytes);
        kept = (Memory){bytes, size};
        pthread_setspecific(thread_end, bytes); /* to be freed then */
    }
    return bytes;
}

static void give_back(void *bytes)
{
    if (bytes != kept.bytes)
        free(bytes);
}

/* ---- numbers too small for all their digits ---- */

/* The derivative of a gate that is shut is such a number, 1e-40 say, and Intel's processors need
 * far longer for one than for others. They count as 0 while a routine runs, and not in
 * what the thread does else. */
#if defined(__SSE2__)
enum { FLUSH = 0x8040 }; /* of results and of operands: FTZ and DAZ in MXCSR */

static uint64_t flush_subnormals(void)
{
    unsigned before = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(before | FLUSH);
    return before;
}

static void restore_mode(uint64_t before)
{
    __builtin_ia32_ldmxcsr((unsigned)before);
}
#elif defined(__aarch64__)
enum { FLUSH = 1 << 24 }; /* FZ in FPCR */

static uint64_t flush_subnormals(void)
{
    uint64_t before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    __asm__ volatile("msr fpcr, %0" : : "r"(before | FLUSH));
    return before;
}

static void restore_mode(uint64_t before)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(before));
}
#else
static uint64_t flush_subnormals(void)
{
    return 0;
}

static void restore_mode(uint64_t before)
{
    (void)before;
}
#endif

/* ---- the work ---- */

/* Return whether there was memory. */
static int work(const Call *c, int64_t *counter)
{
    int64_t a[MAX_ARGUMENTS + 2];
    for (int64_t i = 0; i < c->n_arguments; i++)
        a[i] = c->arguments[i];
    for (int64_t i = c->n_arguments; i < MAX_ARGUMENTS + 2; i++)
        a[i] = 0;
    a[c->n_arguments] = (intptr_t)counter;
    void *memory = c->n_bytes ? take_memory(c->n_bytes) : NULL;
    if (c->n_bytes && !memory)
        return 0;
    a[c->n_arguments + 1] = (intptr_t)memory;
    uint64_t mode = flush_subnormals();
    c->routine(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12],
               a[13], a[14], a[15], a[16], a[17], a[18], a[19], a[20], a[21], a[22], a[23], a[24],
               a[25]);
    restore_mode(mode);
    if (memory)
        give_back(memory);
    return 1;
}

static void wait_for_call(Helper *self)
{
    for (int turn = 0; turn < TURNS; turn++) {
        if (self->state == CALLED)
            return;
        relax(turn);
    }
    pthread_mutex_lock(&self->lock);
    self->asleep = 1; /* before the state is read: whoever calls sets the state, then reads this */
    while (self->state != CALLED)
        pthread_cond_wait(&self->wake, &self->lock);
    self->asleep = 0;
    pthread_mutex_unlock(&self->lock);
}

static void *help(void *self_)
{
    Helper *self = self_;
    for (;;) {
        wait_for_call(self);
        State state = CALLED;
        if (atomic_compare_exchange_strong(&self->state, &state, AT_WORK)) {
            work(call, pieces); /* without memory, others do it */
            self->state = IDLE;
        }
    }
    return NULL;
}

static void call_helper(Helper *helper)
{
    helper->state = CALLED;
    if (helper->asleep) {
        pthread_mutex_lock(&helper->lock);
        pthread_cond_signal(&helper->wake);
        pthread_mutex_unlock(&helper->lock);
    }
}

/* Wait until a helper has done what it has begun; what it has not is called off. */
static void call_off(Helper *helper)
{
    State state = CALLED;
    if (atomic_compare_exchange_strong(&helper->state, &state, IDLE))
        return;
    for (int turn = 0; helper->state != IDLE; turn++)
        relax(turn);
}

/* Start helpers until there are `n`, as far as the system allows; return how many may be called. */
static int64_t hire(int64_t n)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the threads of Python */
    while (n_helpers < n && n_helpers < MAX_HELPERS) {
        Helper *helper = &helpers[n_helpers];
        pthread_t thread;
        helper->state = IDLE;
        helper->asleep = 0;
        pthread_mutex_init(&helper->lock, NULL);
        pthread_cond_init(&helper->wake, NULL);
        if (pthread_create(&thread, NULL, help, helper))
            break;
        pthread_detach(thread);
        n_helpers++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return n < n_helpers ? n : n_helpers;
}

/* Run a call in several threads, one of them the caller's. Return 0, or 1 for want of memory. */
int64_t run(const Call *c, int64_t n_threads)
{
    int64_t counter = 0;
    if (n_threads == 1 || atomic_flag_test_and_set(&at_work))
        return !work(c, &counter);
    call = c;
    pieces = &counter;
    int64_t n = n_threads - 1 <= n_helpers ? n_threads - 1 : hire(n_threads - 1);
    for (int64_t i = 0; i < n; i++)
        call_helper(&helpers[i]);
    int done = work(c, &counter);
    for (int64_t i = 0; i < n; i++)
        call_off(&helpers[i]);
    atomic_flag_clear(&at_work);
    return !done;
}

/* ---- processes ---- */

/* A forked process (a data loader's worker) has one thread, whatever its parent was doing. */
static void start_alone(void)
{
    n_helpers = 0;
    atomic_flag_clear(&at_work);
}

__attribute__((constructor)) static void prepare(void)
{
    pthread_key_create(&thread_end, free);
    pthread_atfork(NULL, NULL, start_alone);
}
