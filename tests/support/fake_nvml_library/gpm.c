/* GPM: activities over the time between two samples, on Hopper and later. */
#include "core.h"

#include <stdlib.h>

#define SAMPLE_MAGIC 0x67706d73u

struct fake_gpm_sample {
    uint32_t magic;
    uint32_t gpu;
    uint64_t at_us; /* 0: not taken yet */
};

nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *support) {
    FAKE_DEVICE_CALL(nvmlGpmQueryDeviceSupport, device, FOR_CARD_OR_MIG);
    if (support->version != 1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    fake_output(&call, &support->isSupportedDevice, sizeof(unsigned), 0);
    support->isSupportedDevice = gpu->gpm_supported;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *sample) {
    FAKE_CALL(nvmlGpmSampleAlloc);
    struct fake_gpm_sample *made = calloc(1, sizeof *made);
    if (!made) return NVML_ERROR_MEMORY;
    made->magic = SAMPLE_MAGIC;
    *sample = made;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample) {
    FAKE_CALL(nvmlGpmSampleFree);
    if (!sample || sample->magic != SAMPLE_MAGIC) return NVML_ERROR_INVALID_ARGUMENT;
    sample->magic = 0;
    free(sample);
    return NVML_SUCCESS;
}

static nvmlReturn_t take(nvmlDevice_t device, const fake_gpu_t *gpu, nvmlGpmSample_t sample) {
    if (!gpu->gpm_supported) return NVML_ERROR_NOT_SUPPORTED;
    if (!sample || sample->magic != SAMPLE_MAGIC) return NVML_ERROR_INVALID_ARGUMENT;
    sample->gpu = device->gpu;
    sample->at_us = fake_now_us();
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample) {
    FAKE_DEVICE_CALL(nvmlGpmSampleGet, device, FOR_CARD);
    return take(device, gpu, sample);
}

nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned instance, nvmlGpmSample_t sample) {
    FAKE_DEVICE_CALL(nvmlGpmMigSampleGet, device, FOR_CARD);
    (void)instance;
    return take(device, gpu, sample);
}

static double mib_per_second(const fake_gpu_t *gpu, unsigned id) {
    switch (id) {
    case 20: return gpu->pcie_tx_kib_per_second / 1024.0;
    case 21: return gpu->pcie_rx_kib_per_second / 1024.0;
    case 60: return (double)gpu->nvlink_rx_kib_per_second / 1024.0;
    default: return (double)gpu->nvlink_tx_kib_per_second / 1024.0;
    }
}

/* A kernel that waits in a collective is resident like any other, and fills few SMs. */
static double sm_percent(const fake_gpu_t *gpu) {
    double full = gpu->gpm_sm_percent;
    if (gpu->waveform == FAKE_WAVEFORM_VIRTUAL)
        for (int i = 0; i < FAKE_MAX_KERNEL_SLOTS; i++) {
            const fake_kernel_slot_t *slot = &fake_state->kernel_slots[i];
            if (fake_slot_of(slot, gpu)) full = slot->sm_percent;
        }
    return full;
}

static nvmlReturn_t metric(const fake_gpu_t *gpu, unsigned id, double share, double *value) {
    switch (id) {
    case 1: *value = (fake_moves(gpu) ? 100.0 : gpu->utilization) * share; break;
    case 2: *value = sm_percent(gpu) * share; break;
    case 3: *value = gpu->gpm_sm_occupancy_percent * share; break;
    case 5: case 7: *value = gpu->gpm_tensor_percent * share; break;
    case 10: *value = gpu->gpm_dram_percent * share; break;
    case 11: *value = gpu->gpm_fp64_percent * share; break;
    case 12: *value = gpu->gpm_fp32_percent * share; break;
    case 13: *value = gpu->gpm_fp16_percent * share; break;
    case 20: case 21: case 60: case 61: *value = mib_per_second(gpu, id) * share; break;
    default: return NVML_ERROR_NOT_SUPPORTED;
    }
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *get) {
    FAKE_CALL(nvmlGpmMetricsGet);
    if (get->version != 1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlGpmSample_t a = get->sample1, b = get->sample2;
    if (!a || !b || a->magic != SAMPLE_MAGIC || b->magic != SAMPLE_MAGIC || !a->at_us || !b->at_us ||
        a->gpu != b->gpu || a->gpu >= fake_state->gpu_count)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t error = fake_enter_gpu(&call, a->gpu);
    if (error) return error;
    const fake_gpu_t *gpu = call.gpu;
    FAKE_VALUES(get->metrics, get->numMetrics);
    double share = fake_moves(gpu) ? fake_level(gpu, a->at_us, b->at_us) / 100.0 : 1.0;
    for (unsigned i = 0; i < get->numMetrics; i++)
        get->metrics[i].nvmlReturn =
            metric(gpu, get->metrics[i].metricId, share, &get->metrics[i].value);
    return NVML_SUCCESS;
}
