/* The readings of one GPU: as set, or moved along with its load. */
#include "core.h"

static uint64_t period_of(const fake_gpu_t *gpu) {
    return gpu->sample_period_us ? gpu->sample_period_us : 167000;
}

/* NVML answers with the driver's newest complete sample. */
unsigned fake_utilization(const fake_gpu_t *gpu, uint64_t now_us) {
    if (!fake_moves(gpu)) return gpu->utilization;
    uint64_t end = fake_sample_slot(gpu, now_us);
    return (unsigned)(fake_level(gpu, end - period_of(gpu), end) + 0.5);
}

/* The share of the span from idle to the limit that load takes at `full` percent. */
static double power_span(const fake_gpu_t *gpu) {
    double full = 95.0;
    if (gpu->waveform == FAKE_WAVEFORM_VIRTUAL)
        for (int i = 0; i < FAKE_MAX_KERNEL_SLOTS; i++) {
            const fake_kernel_slot_t *slot = &fake_state->kernel_slots[i];
            if (fake_slot_of(slot, gpu)) full = slot->power_percent;
        }
    double span = (double)gpu->power_limit_enforced_mw - (double)gpu->power_idle_mw;
    return span > 0 ? span * full / 100.0 : 0.0;
}

unsigned fake_power_mw(const fake_gpu_t *gpu, uint64_t at_us, int instant) {
    if (!fake_moves(gpu)) return instant ? gpu->power_instant_mw : gpu->power_mw;
    uint64_t lag = instant ? gpu->power_lag_us : gpu->power_lag_us + 500000;
    return (unsigned)(gpu->power_idle_mw + power_span(gpu) * fake_lagged_level(gpu, at_us, lag) / 100.0);
}

int fake_temperature_c(const fake_gpu_t *gpu, uint64_t at_us) {
    if (!fake_moves(gpu)) return gpu->temperature_c;
    double level = fake_lagged_level(gpu, at_us, 8000000);
    return (int)(gpu->temperature_idle_c +
                 (gpu->temperature_full_c - gpu->temperature_idle_c) * level / 100.0 + 0.5);
}

unsigned long long fake_energy_mj(const fake_gpu_t *gpu, uint64_t at_us) {
    if (!fake_moves(gpu) || at_us <= gpu->energy_since_us) return gpu->energy_mj;
    double seconds = (double)(at_us - gpu->energy_since_us) / 1e6;
    double busy = fake_busy_seconds(gpu, gpu->energy_since_us, at_us);
    return gpu->energy_mj + (unsigned long long)(gpu->power_idle_mw * seconds + power_span(gpu) * busy);
}

unsigned long long fake_memory_used(const fake_gpu_t *gpu) {
    unsigned long long used = gpu->memory_used_bytes;
    for (int i = 0; i < FAKE_MAX_KERNEL_SLOTS; i++) {
        const fake_kernel_slot_t *slot = &fake_state->kernel_slots[i];
        if (fake_slot_holds(slot, gpu)) used += slot->used_bytes;
    }
    return used;
}

static int resting(const fake_gpu_t *gpu, uint64_t at_us) {
    return fake_moves(gpu) && fake_lagged_level(gpu, at_us, 1000000) < 1.0;
}

unsigned fake_clock_mhz(const fake_gpu_t *gpu, unsigned type, uint64_t at_us) {
    const unsigned now[] = {gpu->clock_graphics_mhz, gpu->clock_sm_mhz, gpu->clock_memory_mhz,
                            gpu->clock_video_mhz};
    if (type != 2 && resting(gpu, at_us)) return gpu->clock_sm_idle_mhz;
    return now[type];
}

unsigned long long fake_event_reasons(const fake_gpu_t *gpu, uint64_t at_us) {
    return gpu->event_reasons | (resting(gpu, at_us) ? 1u : 0u);
}

unsigned fake_scaled(const fake_gpu_t *gpu, uint64_t at_us, unsigned full) {
    if (!fake_moves(gpu)) return full;
    return (unsigned)(full * fake_utilization(gpu, at_us) / 100.0 + 0.5);
}

unsigned long long fake_counter(const fake_gpu_t *gpu, unsigned long long base, uint64_t since_us,
                                unsigned long long per_second, uint64_t at_us) {
    if (!fake_moves(gpu) || at_us <= since_us) return base;
    return base + (unsigned long long)((double)per_second * fake_busy_seconds(gpu, since_us, at_us));
}
