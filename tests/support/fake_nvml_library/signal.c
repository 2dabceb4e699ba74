/* What a GPU does over time: a pure function of the clock, or what its virtual jobs recorded. */
#define _GNU_SOURCE
#include "core.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

int fake_moves(const fake_gpu_t *gpu) { return gpu->waveform != FAKE_WAVEFORM_MANUAL; }

/* A process that has ended but was not reaped still answers kill(pid, 0); a driver has let go of
 * its context by then. */
int fake_process_alive(uint32_t pid) {
    char path[32], line[512];
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file) return kill((pid_t)pid, 0) == 0 || errno == EPERM;
    char *got = fgets(line, sizeof line, file);
    fclose(file);
    char *end = got ? strrchr(line, ')') : NULL;
    return end && end[1] == ' ' && end[2] != 'Z' && end[2] != 'X';
}

static double at(const fake_gpu_t *gpu, uint64_t t_us) {
    uint64_t period = gpu->period_us ? gpu->period_us : 1;
    double phase = (double)((t_us + gpu->phase_us) % period) / (double)period;
    switch (gpu->waveform) {
    case FAKE_WAVEFORM_STEADY:
        return gpu->level_percent;
    case FAKE_WAVEFORM_SQUARE:
        return phase * 100.0 < gpu->duty_percent ? gpu->level_percent : 0.0;
    case FAKE_WAVEFORM_STEPS: {
        uint32_t steps = gpu->step_count <= FAKE_MAX_STEPS ? gpu->step_count : FAKE_MAX_STEPS;
        return steps ? gpu->step_percent[(uint32_t)(phase * steps) % steps] : 0.0;
    }
    default:
        return gpu->utilization;
    }
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t most(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* A job that was killed while a kernel ran leaves it open. Looking that up costs a file read, so
 * the answer is kept for a moment: one read of all samples asks a hundred times. */
static int running(const fake_kernel_slot_t *slot) {
    static struct { uint32_t pid; int alive; time_t second; long tick; } seen[FAKE_MAX_KERNEL_SLOTS];
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    long tick = now.tv_nsec / 10000000;
    size_t i = (size_t)(slot - fake_state->kernel_slots);
    if (seen[i].pid != slot->pid || seen[i].second != now.tv_sec || seen[i].tick != tick) {
        seen[i].alive = fake_process_alive(slot->pid);
        seen[i].pid = slot->pid;
        seen[i].second = now.tv_sec;
        seen[i].tick = tick;
    }
    return seen[i].alive;
}

/* Calls `each` with every interval of the slot that touches [from, to), newest first. */
typedef void (*visit_t)(void *context, uint64_t start, uint64_t end);

static void visit_kernels(const fake_kernel_slot_t *slot, uint64_t from, uint64_t to, visit_t each,
                          void *context) {
    uint64_t open = __atomic_load_n(&slot->open_since_us, __ATOMIC_ACQUIRE);
    uint64_t head = __atomic_load_n(&slot->head, __ATOMIC_ACQUIRE);
    if (open && open < to && running(slot)) each(context, most(open, from), to);
    uint64_t oldest = head > FAKE_MAX_KERNELS ? head - FAKE_MAX_KERNELS : 0;
    for (uint64_t i = head; i-- > oldest;) {
        fake_kernel_t kernel = slot->kernels[i % FAKE_MAX_KERNELS];
        if (kernel.end_us <= from) break;
        /* The open kernel is recorded just before it is closed: do not count it twice. */
        if (open && kernel.end_us > open) kernel.end_us = open;
        if (kernel.start_us < to) each(context, most(kernel.start_us, from), least(kernel.end_us, to));
    }
}

static void add_up(void *context, uint64_t start, uint64_t end) {
    if (end > start) *(uint64_t *)context += end - start;
}

double fake_slot_percent(const fake_kernel_slot_t *slot, uint64_t from, uint64_t to) {
    uint64_t busy = 0;
    if (to <= from) return 0.0;
    visit_kernels(slot, from, to, add_up, &busy);
    return fmin(100.0, 100.0 * (double)busy / (double)(to - from));
}

/* Utilisation counts a moment once however many jobs share it, so mark moments, then count. */
#define MARKS 512
typedef struct {
    uint64_t from, to;
    uint8_t marks[MARKS];
} marks_t;

static void mark(void *context, uint64_t start, uint64_t end) {
    marks_t *m = context;
    if (end <= start) return;
    double scale = (double)MARKS / (double)(m->to - m->from);
    unsigned first = (unsigned)((double)(start - m->from) * scale + 0.5);
    unsigned last = (unsigned)((double)(end - m->from) * scale + 0.5);
    if (last > MARKS) last = MARKS;
    if (first < last) memset(m->marks + first, 1, last - first);
}

int fake_slot_of(const fake_kernel_slot_t *slot, const fake_gpu_t *gpu) {
    return slot->pid && &fake_state->gpus[slot->gpu % FAKE_MAX_GPUS] == gpu;
}

/* The job still holds the GPU: it is listed, and its memory counts. */
int fake_slot_holds(const fake_kernel_slot_t *slot, const fake_gpu_t *gpu) {
    return fake_slot_of(slot, gpu) && !slot->closed && fake_process_alive(slot->pid);
}

static double virtual_level(const fake_gpu_t *gpu, uint64_t from, uint64_t to) {
    int jobs = 0;
    const fake_kernel_slot_t *only = NULL;
    for (int i = 0; i < FAKE_MAX_KERNEL_SLOTS; i++)
        if (fake_slot_of(&fake_state->kernel_slots[i], gpu)) {
            only = &fake_state->kernel_slots[i];
            jobs++;
        }
    if (!jobs) return 0.0;
    if (jobs == 1) return fake_slot_percent(only, from, to);
    marks_t m = {.from = from, .to = to};
    for (int i = 0; i < FAKE_MAX_KERNEL_SLOTS; i++)
        if (fake_slot_of(&fake_state->kernel_slots[i], gpu))
            visit_kernels(&fake_state->kernel_slots[i], from, to, mark, &m);
    unsigned busy = 0;
    for (unsigned i = 0; i < MARKS; i++) busy += m.marks[i];
    return 100.0 * busy / MARKS;
}

double fake_level(const fake_gpu_t *gpu, uint64_t from, uint64_t to) {
    if (to <= from) return 0.0;
    if (gpu->waveform == FAKE_WAVEFORM_VIRTUAL) return virtual_level(gpu, from, to);
    if (gpu->waveform <= FAKE_WAVEFORM_STEADY) return at(gpu, from);
    enum { POINTS = 24 };
    double sum = 0.0;
    for (int i = 0; i < POINTS; i++)
        sum += at(gpu, from + (uint64_t)((double)(to - from) * (i + 0.5) / POINTS));
    return sum / POINTS;
}

double fake_lagged_level(const fake_gpu_t *gpu, uint64_t at_us, uint64_t lag_us) {
    enum { POINTS = 20 };
    uint64_t step = lag_us / 5 ? lag_us / 5 : 1;
    double sum = 0.0, weights = 0.0, weight = 1.0;
    for (int i = 0; i < POINTS && at_us > (uint64_t)(i + 1) * step; i++, weight *= 0.8187307530779818) {
        uint64_t to = at_us - (uint64_t)i * step;
        sum += weight * fake_level(gpu, to - step, to);
        weights += weight;
    }
    return weights > 0.0 ? sum / weights : 0.0;
}

/* How long the GPU was busy from one moment to another, in seconds at full level: whole periods by
 * their mean, the rest by looking. */
double fake_busy_seconds(const fake_gpu_t *gpu, uint64_t from, uint64_t to) {
    if (to <= from) return 0.0;
    if (gpu->waveform == FAKE_WAVEFORM_VIRTUAL) {
        uint64_t busy = gpu->retired_busy_us;
        for (int i = 0; i < FAKE_MAX_KERNEL_SLOTS; i++) {
            const fake_kernel_slot_t *slot = &fake_state->kernel_slots[i];
            if (!fake_slot_of(slot, gpu)) continue;
            busy += slot->total_busy_us;
            if (slot->open_since_us && slot->open_since_us < to && running(slot))
                busy += to - slot->open_since_us;
        }
        return (double)busy / 1e6;
    }
    uint64_t period = gpu->period_us ? gpu->period_us : 1000000;
    uint64_t whole = (to - from) / period * period;
    double percent_us = (double)whole * fake_level(gpu, 0, period) +
                        (double)(to - from - whole) * fake_level(gpu, from + whole, to);
    return percent_us / 1e8;
}

/* Samples end on multiples of the period, so two reads at different moments see the same ones. */
uint64_t fake_sample_slot(const fake_gpu_t *gpu, uint64_t at_us) {
    uint64_t period = gpu->sample_period_us ? gpu->sample_period_us : 167000;
    return at_us / period * period;
}
