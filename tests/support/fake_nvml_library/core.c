/* Maps the control file, keeps the handles, and frames every call: counters, time, faults. */
#define _GNU_SOURCE
#include "core.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

fake_state_t *fake_state;
struct fake_device fake_devices[FAKE_MAX_GPUS];
struct fake_device fake_mig_devices[FAKE_MAX_GPUS][FAKE_MAX_MIG];

static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;
static char mapped_path[4096];
static unsigned init_count;

_Static_assert(FN_COUNT <= FAKE_MAX_FUNCTIONS, "raise FAKE_MAX_FUNCTIONS");

static fake_state_t *map_state(const char *path) {
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        fprintf(stderr, "simulated NVML: cannot open %s: %s\n", path, strerror(errno));
        return NULL;
    }
    struct stat status;
    void *memory = MAP_FAILED;
    if (fstat(fd, &status) == 0 && (size_t)status.st_size >= sizeof(fake_state_t))
        memory = mmap(NULL, sizeof(fake_state_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (memory == MAP_FAILED) {
        fprintf(stderr, "simulated NVML: %s is not a control file\n", path);
        return NULL;
    }
    fake_state_t *state = memory;
    if (state->magic != FAKE_MAGIC || state->layout_version != FAKE_LAYOUT_VERSION ||
        state->size != sizeof(fake_state_t)) {
        fprintf(stderr, "simulated NVML: %s has another layout\n", path);
        munmap(memory, sizeof(fake_state_t));
        return NULL;
    }
    return state;
}

static void fill_handles(void) {
    for (uint32_t gpu = 0; gpu < FAKE_MAX_GPUS; gpu++) {
        fake_devices[gpu] = (struct fake_device){gpu, -1};
        for (int32_t mig = 0; mig < FAKE_MAX_MIG; mig++)
            fake_mig_devices[gpu][mig] = (struct fake_device){gpu, mig};
    }
}

/* A test process meets many control files one after the other, so each init looks again. The old
 * mapping stays: a call that hangs in another thread may still be reading it. */
static nvmlReturn_t ensure_state(void) {
    const char *path = getenv("FAKE_NVML_STATE");
    if (!path || strlen(path) >= sizeof mapped_path) return NVML_ERROR_DRIVER_NOT_LOADED;
    if (fake_state && strcmp(path, mapped_path) == 0) return NVML_SUCCESS;
    fake_state_t *state = map_state(path);
    if (!state) return NVML_ERROR_DRIVER_NOT_LOADED;
    strcpy(mapped_path, path);
    fill_handles();
    init_count = 0;
    fake_state = state;
    return NVML_SUCCESS;
}

static void sleep_us(uint64_t us) {
    struct timespec left = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {}
}

/* Waits until nobody writes the list that `sequence` guards and gives its number; gives up on a
 * writer that died half-way. */
uint32_t fake_read_begin(const uint32_t *sequence) {
    uint32_t seen = __atomic_load_n(sequence, __ATOMIC_ACQUIRE);
    for (int attempt = 0; (seen & 1) && attempt < 4000; attempt++) {
        sleep_us(250);
        seen = __atomic_load_n(sequence, __ATOMIC_ACQUIRE);
    }
    return seen;
}

/* Whether what was read since `begun` may be half old and half new. */
int fake_read_again(const uint32_t *sequence, uint32_t begun) {
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return !(begun & 1) && __atomic_load_n(sequence, __ATOMIC_RELAXED) != begun;
}

/* Whether the fault is for this call, too. */
static int take_one(fake_fault_t *fault) {
    uint32_t remaining = __atomic_load_n(&fault->remaining, __ATOMIC_RELAXED);
    if (remaining == UINT32_MAX) return 1;
    while (remaining) {
        if (__atomic_compare_exchange_n(&fault->remaining, &remaining, remaining - 1, 0,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return 1;
    }
    return 0;
}

static nvmlReturn_t apply_fault(fake_call_t *call, fake_fault_t *fault) {
    if (fault->delay_us) sleep_us(fault->delay_us);
    while (*(volatile uint32_t *)&fault->hang) sleep_us(2000);
    uint32_t error = fault->error, answer = fault->answer;
    if ((!error && !answer) || !take_one(fault)) return NVML_SUCCESS;
    call->answer = answer;
    return error;
}

void fake_output(fake_call_t *call, void *at, unsigned size, int is_count) {
    if (!at || call->given == FAKE_OUTPUTS) return;
    call->outputs[call->given].at = at;
    call->outputs[call->given].size = size;
    call->outputs[call->given++].is_count = is_count;
}

/* Rubbish as seen from real drivers: 4108056002 as a number, no UTF-8 as text. */
static void falsify(fake_call_t *call) {
    static const unsigned char rubbish[] = {0xc2, 0xf5, 0xdb, 0xf4};
    for (unsigned n = 0; n < call->given; n++) {
        unsigned char *at = call->outputs[n].at;
        int is_count = call->outputs[n].is_count;
        if (call->answer == FAKE_ANSWER_EMPTY) memset(at, 0, call->outputs[n].size);
        else if (is_count == (call->answer == FAKE_ANSWER_GARBAGE_COUNT))
            for (unsigned i = 0; i < call->outputs[n].size; i++) at[i] = rubbish[i % 4];
    }
}

uint64_t fake_now_us(void) {
    uint64_t set = fake_state ? *(volatile uint64_t *)&fake_state->now_us : 0;
    if (set) return set;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

static void start(fake_call_t *call) { clock_gettime(CLOCK_MONOTONIC, &call->started); }

/* A library gives its own version also where it does not start: nvidia-smi prints it then. */
nvmlReturn_t fake_enter(fake_call_t *call) {
    start(call);
    int needs_start = call->function != FN_nvmlSystemGetNVMLVersion;
    if (!fake_state || (needs_start && !init_count)) return NVML_ERROR_UNINITIALIZED;
    return apply_fault(call, &fake_state->faults[call->function]);
}

/* For calls that find their GPU by other means than a handle. */
nvmlReturn_t fake_enter_gpu(fake_call_t *call, uint32_t gpu) {
    call->gpu = &fake_state->gpus[gpu];
    nvmlReturn_t error = apply_fault(call, &call->gpu->faults[call->function]);
    if (!error && *(volatile uint32_t *)&call->gpu->lost) error = NVML_ERROR_GPU_IS_LOST;
    return error;
}

static int known_handle(nvmlDevice_t device) {
    return (device >= fake_devices && device < fake_devices + FAKE_MAX_GPUS) ||
           (device >= &fake_mig_devices[0][0] &&
            device < &fake_mig_devices[0][0] + FAKE_MAX_GPUS * FAKE_MAX_MIG);
}

nvmlReturn_t fake_enter_device(fake_call_t *call, nvmlDevice_t device, int scope) {
    start(call);
    if (!fake_state || !init_count) return NVML_ERROR_UNINITIALIZED;
    if (!known_handle(device) || device->gpu >= fake_state->gpu_count)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t error = apply_fault(call, &fake_state->faults[call->function]);
    if (!error) error = fake_enter_gpu(call, device->gpu);
    if (!error && device->mig >= 0 && scope == FOR_CARD) error = NVML_ERROR_NOT_SUPPORTED;
    return error;
}

static void count(fake_counter_t *counter, uint64_t nanoseconds) {
    __atomic_fetch_add(&counter->calls, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&counter->nanoseconds, nanoseconds, __ATOMIC_RELAXED);
}

void fake_leave(fake_call_t *call) {
    if (!fake_state) return;
    if (call->answer) falsify(call);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t spent = (uint64_t)(now.tv_sec - call->started.tv_sec) * 1000000000u +
                     (uint64_t)now.tv_nsec - (uint64_t)call->started.tv_nsec;
    count(&fake_state->counters[call->function], spent);
    if (call->gpu) count(&call->gpu->counters[call->function], spent);
}

/* `size` is the array the text lies in, where it need not end in NUL. */
nvmlReturn_t fake_copy_text(const char *text, unsigned size, char *out, unsigned length) {
    if (!out) return NVML_ERROR_INVALID_ARGUMENT;
    size_t used = strnlen(text, size);
    if (used + 1 > length) return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(out, text, used);
    out[used] = 0;
    return NVML_SUCCESS;
}

static nvmlReturn_t initialise(fake_call_t *call) {
    pthread_mutex_lock(&init_lock);
    nvmlReturn_t error = ensure_state();
    pthread_mutex_unlock(&init_lock);
    start(call);
    if (!error) error = apply_fault(call, &fake_state->faults[call->function]);
    if (error) return error;
    pthread_mutex_lock(&init_lock);
    init_count++;
    __atomic_fetch_add(&fake_state->init_count, 1, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&init_lock);
    return NVML_SUCCESS;
}

#define INIT(name) \
    __attribute__((cleanup(fake_leave))) fake_call_t call = {FN_##name, 0, {0, 0}}; \
    return initialise(&call)

nvmlReturn_t nvmlInit(void) { INIT(nvmlInit); }
nvmlReturn_t nvmlInit_v2(void) { INIT(nvmlInit_v2); }
nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    INIT(nvmlInitWithFlags);
}

nvmlReturn_t nvmlShutdown(void) {
    FAKE_CALL(nvmlShutdown);
    pthread_mutex_lock(&init_lock);
    if (init_count) {
        init_count--;
        __atomic_fetch_sub(&fake_state->init_count, 1, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&init_lock);
    return NVML_SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t result) {
    static const char *const texts[] = {
        "Success", "Uninitialized", "Invalid Argument", "Not Supported",
        "Insufficient Permissions", "Already Initialized", "Not Found", "Insufficient Size",
        "Insufficient External Power", "Driver Not Loaded", "Timeout", "Interrupt Request Issue",
        "NVML Shared Library Not Found", "Function Not Found", "Corrupted infoROM",
        "GPU is lost", "GPU requires reset",
        "The operating system has blocked the request.", "RM has detected an NVML/RM version mismatch.",
        "In use by another client", "Insufficient Memory", "No data",
    };
    if (result < sizeof texts / sizeof *texts) return texts[result];
    return result == 25 ? "Argument version mismatch" : "Unknown Error";
}
