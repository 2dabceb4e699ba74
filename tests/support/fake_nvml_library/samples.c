/* nvmlDeviceGetSamples: the driver's ring of fine samples. */
#include "core.h"

#include <string.h>

enum { TOTAL_POWER, GPU_UTILIZATION, MEMORY_UTILIZATION, ENCODER, DECODER, SM_CLOCK, MEMORY_CLOCK };

static double value_at(const fake_gpu_t *gpu, unsigned type, uint64_t from, uint64_t to) {
    double level = fake_moves(gpu) ? fake_level(gpu, from, to) : 100.0;
    switch (type) {
    case TOTAL_POWER: return fake_power_mw(gpu, to, 1);
    case GPU_UTILIZATION: return fake_moves(gpu) ? level : gpu->utilization;
    case MEMORY_UTILIZATION: return gpu->memory_utilization * level / 100.0;
    case ENCODER: return gpu->encoder_utilization * level / 100.0;
    case DECODER: return gpu->decoder_utilization * level / 100.0;
    case SM_CLOCK: return fake_clock_mhz(gpu, 1, to);
    default: return fake_clock_mhz(gpu, 2, to);
    }
}

static void store(double value, nvmlValue_t *out) {
    out->ullVal = 0;
    out->uiVal = (unsigned)(value + 0.5);
}

/* The list a test set, whole even while the test is replacing it. */
static unsigned copy_list(const fake_gpu_t *gpu, unsigned type, fake_sample_t *out) {
    unsigned count;
    uint32_t begun;
    do {
        begun = fake_read_begin(&gpu->samples_sequence);
        count = gpu->sample_count[type];
        if (count > FAKE_MAX_SAMPLES) count = FAKE_MAX_SAMPLES;
        memcpy(out, gpu->samples[type], count * sizeof *out);
    } while (fake_read_again(&gpu->samples_sequence, begun));
    return count;
}

static unsigned from_list(const fake_gpu_t *gpu, unsigned type, uint64_t after, unsigned room,
                          nvmlSample_t *out) {
    fake_sample_t list[FAKE_MAX_SAMPLES];
    unsigned count = copy_list(gpu, type, list), got = 0;
    for (unsigned i = 0; i < count && got < room; i++) {
        if (list[i].at_us <= after) continue;
        out[got].timeStamp = list[i].at_us;
        store(list[i].value, &out[got].sampleValue);
        got++;
    }
    return got;
}

static unsigned from_signal(const fake_gpu_t *gpu, unsigned type, uint64_t after, unsigned room,
                            nvmlSample_t *out) {
    uint64_t period = gpu->sample_period_us ? gpu->sample_period_us : 167000;
    uint64_t newest = fake_sample_slot(gpu, fake_now_us());
    uint64_t held = period * gpu->sample_capacity;
    uint64_t first = newest > held ? newest - held + period : period;
    if (after >= first) first = after / period * period + period;
    unsigned got = 0;
    for (uint64_t end = first; end <= newest && got < room; end += period, got++) {
        out[got].timeStamp = end;
        store(value_at(gpu, type, end - period, end), &out[got].sampleValue);
    }
    return got;
}

/* Asked without room, the driver names the size of its ring, not how many samples are new. */
nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, unsigned type, unsigned long long after,
                                  unsigned *value_type, unsigned *count, nvmlSample_t *samples) {
    FAKE_DEVICE_CALL(nvmlDeviceGetSamples, device, FOR_CARD);
    if (!value_type || !count) return NVML_ERROR_INVALID_ARGUMENT;
    if (type >= FAKE_SAMPLE_TYPES) return NVML_ERROR_NOT_SUPPORTED;
    if (type >= GPU_UTILIZATION && type <= DECODER) FAKE_NOT_DIVIDED();
    FAKE_COUNT(count);
    *value_type = NVML_VALUE_UINT;
    if (!samples) {
        *count = gpu->sample_capacity;
        return NVML_SUCCESS;
    }
    unsigned got = gpu->samples_set[type] ? from_list(gpu, type, after, *count, samples)
                                          : from_signal(gpu, type, after, *count, samples);
    *count = got;
    FAKE_VALUES(samples, got);
    return got || call.answer ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}
