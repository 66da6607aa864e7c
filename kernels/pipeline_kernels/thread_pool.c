/* A thread pool that runs routines of the other libraries.
 *
 * A kernel on one small structure takes tens of microseconds, and there are a hundred of them in a
 * step of molecular dynamics. An idle worker therefore spins for a while before it sleeps, and the
 * caller never waits for one that has not begun: threads take pieces of the work from a shared
 * counter until none is left, and the caller cancels workers that come too late.
 *
 * There is one pool a process. A caller that finds it busy, in another thread, works alone. */

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

enum { MAX_ARGUMENTS = 24, MAX_WORKERS = 255 };
/* Spins of an idle worker: some 20 to 50 us, as OpenMP's threads are set to (pipeline_core.cli). */
enum { SPINS = 2000, SPINS_PER_YIELD = 64 };
/* Bytes of a workspace that is kept for the next call: the system maps new ones page by page. */
enum { MAX_KEPT = 1 << 26, ALIGNMENT = 64 };

/* Surplus arguments do no harm: by the calling conventions of x86-64 and of AArch64 the caller
 * removes what it has passed, in registers or in words of the stack. */
typedef void Routine(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                     int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                     int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                     int64_t, int64_t);

/* A call: the routine takes the arguments, the address of the counter and, unless `n_bytes` is 0,
 * the address of a workspace of the thread. */
typedef struct {
    Routine *routine;
    int64_t n_arguments, n_bytes;
    int64_t arguments[MAX_ARGUMENTS];
} Call;

typedef enum { IDLE, CALLED, BUSY } State;

typedef struct {
    _Alignas(128) _Atomic State state;
    atomic_int asleep;
    pthread_mutex_t lock;
    pthread_cond_t wake;
} Worker;

typedef struct {
    void *bytes;
    int64_t size;
} Workspace;

static Worker workers[MAX_WORKERS];
static int n_workers;          /* that have been started */
static atomic_flag is_busy = ATOMIC_FLAG_INIT;
static const Call *call;       /* that the pool runs */
static int64_t *pieces;        /* the counter of that call */
static _Thread_local Workspace kept;
static pthread_key_t thread_end;

static void spin(int turn)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
    if (turn % SPINS_PER_YIELD == SPINS_PER_YIELD - 1)
        sched_yield(); /* there may be more threads than cores */
}

/* ---- workspace of a thread ---- */

static void *acquire_workspace(int64_t n_bytes)
{
    if (n_bytes <= kept.size)
        return kept.bytes;
    int64_t size = (n_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    void *bytes = aligned_alloc(ALIGNMENT, size);
    if (bytes && n_bytes <= MAX_KEPT) {
        free(kept.bytes);
        kept = (Workspace){bytes, size};
        pthread_setspecific(thread_end, bytes); /* to be freed then */
    }
    return bytes;
}

static void release_workspace(void *bytes)
{
    if (bytes != kept.bytes)
        free(bytes);
}

/* ---- subnormal numbers ---- */

/* The derivative of a closed gate is subnormal, 1e-40 say, and Intel's processors need far longer
 * for such a number. They count as 0 while a routine runs, and only then. */
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

/* Run a call in this thread. Return 0 for want of memory, else 1. */
static int work(const Call *c, int64_t *counter)
{
    int64_t a[MAX_ARGUMENTS + 2];
    for (int64_t i = 0; i < c->n_arguments; i++)
        a[i] = c->arguments[i];
    for (int64_t i = c->n_arguments; i < MAX_ARGUMENTS + 2; i++)
        a[i] = 0;
    a[c->n_arguments] = (intptr_t)counter;
    void *memory = c->n_bytes ? acquire_workspace(c->n_bytes) : NULL;
    if (c->n_bytes && !memory)
        return 0;
    a[c->n_arguments + 1] = (intptr_t)memory;
    uint64_t mode = flush_subnormals();
    c->routine(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12],
               a[13], a[14], a[15], a[16], a[17], a[18], a[19], a[20], a[21], a[22], a[23], a[24],
               a[25]);
    restore_mode(mode);
    if (memory)
        release_workspace(memory);
    return 1;
}

static void wait_for_call(Worker *self)
{
    for (int turn = 0; turn < SPINS; turn++) {
        if (self->state == CALLED)
            return;
        spin(turn);
    }
    pthread_mutex_lock(&self->lock);
    self->asleep = 1; /* before the state is read: a caller sets the state, then reads this */
    while (self->state != CALLED)
        pthread_cond_wait(&self->wake, &self->lock);
    self->asleep = 0;
    pthread_mutex_unlock(&self->lock);
}

static void *worker_main(void *self_)
{
    Worker *self = self_;
    for (;;) {
        wait_for_call(self);
        State state = CALLED;
        if (atomic_compare_exchange_strong(&self->state, &state, BUSY)) {
            work(call, pieces); /* without memory, other threads do it */
            self->state = IDLE;
        }
    }
    return NULL;
}

static void call_worker(Worker *worker)
{
    worker->state = CALLED;
    if (worker->asleep) {
        pthread_mutex_lock(&worker->lock);
        pthread_cond_signal(&worker->wake);
        pthread_mutex_unlock(&worker->lock);
    }
}

/* Cancel the call of a worker that has not begun; wait for one that has. */
static void cancel(Worker *worker)
{
    State state = CALLED;
    if (atomic_compare_exchange_strong(&worker->state, &state, IDLE))
        return;
    for (int turn = 0; worker->state != IDLE; turn++)
        spin(turn);
}

/* Start workers until there are `n`, as far as the system allows; return the number to call. */
static int64_t start_workers(int64_t n)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the threads of Python */
    while (n_workers < n && n_workers < MAX_WORKERS) {
        Worker *worker = &workers[n_workers];
        pthread_t thread;
        worker->state = IDLE;
        worker->asleep = 0;
        pthread_mutex_init(&worker->lock, NULL);
        pthread_cond_init(&worker->wake, NULL);
        if (pthread_create(&thread, NULL, worker_main, worker))
            break;
        pthread_detach(thread);
        n_workers++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return n < n_workers ? n : n_workers;
}

/* Run a call in several threads, one of them the caller's. Return 0, or 1 for want of memory. */
int64_t run(const Call *c, int64_t n_threads)
{
    int64_t counter = 0;
    if (n_threads == 1 || atomic_flag_test_and_set(&is_busy))
        return !work(c, &counter);
    call = c;
    pieces = &counter;
    int64_t n = n_threads - 1 <= n_workers ? n_threads - 1 : start_workers(n_threads - 1);
    for (int64_t i = 0; i < n; i++)
        call_worker(&workers[i]);
    int done = work(c, &counter);
    for (int64_t i = 0; i < n; i++)
        cancel(&workers[i]);
    atomic_flag_clear(&is_busy);
    return !done;
}

/* ---- forks ---- */

/* A forked process (a data loader's worker) has one thread, whatever its parent was doing. */
static void start_alone(void)
{
    n_workers = 0;
    atomic_flag_clear(&is_busy);
}

__attribute__((constructor)) static void prepare(void)
{
    pthread_key_create(&thread_end, free);
    pthread_atfork(NULL, NULL, start_alone);
}
