/* Processes on a GPU: the lists in all three versions of the structure, and their utilisation. */
#include "core.h"

#include <string.h>

#define LIST_ROOM (FAKE_MAX_PROCESSES + FAKE_MAX_KERNEL_SLOTS)

/* Entries as the driver would report them now: the list a test set and the virtual GPU's jobs. */
static unsigned gather(const fake_gpu_t *gpu, fake_process_t *out) {
    unsigned count;
    uint32_t begun;
    do {
        begun = fake_read_begin(&gpu->process_sequence);
        count = gpu->process_count;
        if (count > FAKE_MAX_PROCESSES) count = FAKE_MAX_PROCESSES;
        memcpy(out, gpu->processes, count * sizeof *out);
    } while (fake_read_again(&gpu->process_sequence, begun));
    unsigned kept = count;
    for (int i = 0; i < FAKE_MAX_KERNEL_SLOTS; i++) {
        const fake_kernel_slot_t *slot = &fake_state->kernel_slots[i];
        if (!fake_slot_holds(slot, gpu)) continue;
        uint64_t end = fake_sample_slot(gpu, fake_now_us());
        double busy = fake_slot_percent(slot, end - gpu->sample_period_us, end);
        out[kept++] = (fake_process_t){
            .pid = slot->pid, .kinds = FAKE_PROCESS_COMPUTE, .used_bytes = slot->used_bytes,
            .sample = busy > 0 ? FAKE_SAMPLE_FIXED : FAKE_SAMPLE_NONE,
            .sm_percent = (uint32_t)(busy * slot->sm_percent / 100.0 + 0.5),
            .memory_percent = (uint32_t)(busy * slot->sm_percent / 250.0 + 0.5),
            .gpu_instance = UINT32_MAX, .compute_instance = UINT32_MAX};
    }
    return kept;
}

static unsigned of_kind(nvmlDevice_t device, const fake_gpu_t *gpu, uint32_t kind,
                        fake_process_t *out) {
    unsigned count = gather(gpu, out), kept = 0;
    const fake_mig_t *mig = device->mig >= 0 ? &gpu->mig[device->mig] : NULL;
    for (unsigned i = 0; i < count; i++) {
        if (!(out[i].kinds & kind)) continue;
        if (mig && (out[i].gpu_instance != mig->gpu_instance ||
                    out[i].compute_instance != mig->compute_instance))
            continue;
        out[kept++] = out[i];
    }
    return kept;
}

/* Between asking for the size and filling the list, processes may have started: then the call
 * that fills it fails as well, and names a larger size. */
static nvmlReturn_t size_race(fake_gpu_t *gpu, unsigned *count) {
    uint32_t left = gpu->process_growth;
    if (!left || !*count) return NVML_SUCCESS;
    if (left != UINT32_MAX) gpu->process_growth = left - 1;
    *count += 1;
    return NVML_ERROR_INSUFFICIENT_SIZE;
}

/* Of each listed process: drivers 535.43 to 535.86 write 32 bytes by a function that writes 24
 * before and after. */
static unsigned record_bytes(const fake_gpu_t *gpu, int version) {
    if (gpu->process_record_bytes) return gpu->process_record_bytes;
    return version == 1 ? sizeof(nvmlProcessInfo_v1_t) : sizeof(nvmlProcessInfo_v2_t);
}

static nvmlReturn_t list(nvmlDevice_t device, fake_gpu_t *gpu, uint32_t kind, unsigned *count,
                         void *infos, int version) {
    fake_process_t found[LIST_ROOM];
    if (!count) return NVML_ERROR_INVALID_ARGUMENT;
    unsigned have = of_kind(device, gpu, kind, found);
    if (*count < have || (!infos && have)) {
        *count = have;
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    nvmlReturn_t raced = infos ? size_race(gpu, count) : NVML_SUCCESS;
    if (raced) return raced;
    unsigned size = record_bytes(gpu, version);
    if (gpu->process_clears) memset(infos, 0, *count * size);
    for (unsigned i = 0; i < have; i++) {
        nvmlProcessInfo_v2_t whole = {found[i].pid, found[i].used_bytes, found[i].gpu_instance,
                                      found[i].compute_instance};
        unsigned char *info = (unsigned char *)infos + (size_t)i * size;
        unsigned filled = size < sizeof whole ? size : sizeof whole;
        memcpy(info, &whole, filled);
        /* What newer records hold behind that: memory protected by confidential computing. */
        memset(info + filled, 0, size - filled);
    }
    *count = have;
    return NVML_SUCCESS;
}

#define LIST(name, kind, version) \
    nvmlReturn_t name(nvmlDevice_t device, unsigned *count, void *infos) { \
        FAKE_DEVICE_CALL(name, device, FOR_CARD_OR_MIG); \
        FAKE_COUNT(count); \
        nvmlReturn_t error = list(device, gpu, kind, count, infos, version); \
        if (!error) fake_output(&call, infos, *count * record_bytes(gpu, version), 0); \
        return error; \
    }
LIST(nvmlDeviceGetComputeRunningProcesses, FAKE_PROCESS_COMPUTE, 1)
LIST(nvmlDeviceGetComputeRunningProcesses_v2, FAKE_PROCESS_COMPUTE, 2)
LIST(nvmlDeviceGetComputeRunningProcesses_v3, FAKE_PROCESS_COMPUTE, 3)
LIST(nvmlDeviceGetGraphicsRunningProcesses, FAKE_PROCESS_GRAPHICS, 1)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, FAKE_PROCESS_GRAPHICS, 2)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, FAKE_PROCESS_GRAPHICS, 3)
LIST(nvmlDeviceGetMPSComputeRunningProcesses, FAKE_PROCESS_MPS, 1)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, FAKE_PROCESS_MPS, 2)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, FAKE_PROCESS_MPS, 3)

/* Newest utilisation of each process that has one newer than `after`. */
static unsigned utilization(fake_gpu_t *gpu, uint64_t after, nvmlProcessUtilizationSample_t *out) {
    fake_process_t found[LIST_ROOM];
    unsigned have = gather(gpu, found), sharing = 0, got = 0;
    uint64_t newest = fake_sample_slot(gpu, fake_now_us());
    for (unsigned i = 0; i < have; i++) sharing += found[i].sample == FAKE_SAMPLE_SHARE;
    for (; got < gpu->process_blank_samples && got < FAKE_MAX_KERNEL_SLOTS; got++)
        out[got] = (nvmlProcessUtilizationSample_t){0};
    for (unsigned i = 0; i < have; i++) {
        const fake_process_t *p = &found[i];
        uint64_t at = p->sample_at_us ? p->sample_at_us : newest;
        if (p->sample == FAKE_SAMPLE_NONE || at <= after) continue;
        nvmlProcessUtilizationSample_t *s = &out[got++];
        *s = (nvmlProcessUtilizationSample_t){p->pid, at, p->sm_percent, p->memory_percent,
                                              p->encoder_percent, p->decoder_percent};
        if (p->sample == FAKE_SAMPLE_SHARE) {
            s->smUtil = fake_utilization(gpu, newest) / sharing;
            s->memUtil = fake_scaled(gpu, newest, gpu->memory_utilization) / sharing;
        }
    }
    return got;
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                             nvmlProcessUtilizationSample_t *samples,
                                             unsigned *count, unsigned long long after) {
    FAKE_DEVICE_CALL(nvmlDeviceGetProcessUtilization, device, FOR_CARD);
    FAKE_NOT_DIVIDED();
    nvmlProcessUtilizationSample_t found[LIST_ROOM + FAKE_MAX_KERNEL_SLOTS];
    if (!count) return NVML_ERROR_INVALID_ARGUMENT;
    FAKE_COUNT(count);
    unsigned have = utilization(gpu, after, found);
    if (!have) {
        *count = 0;
        return call.answer ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
    }
    if (!samples || *count < have) {
        *count = have;
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    memcpy(samples, found, have * sizeof *samples);
    FAKE_VALUES(samples, have);
    *count = have;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                                   nvmlProcessesUtilizationInfo_t *info) {
    FAKE_DEVICE_CALL(nvmlDeviceGetProcessesUtilizationInfo, device, FOR_CARD);
    FAKE_NOT_DIVIDED();
    nvmlProcessUtilizationSample_t found[LIST_ROOM + FAKE_MAX_KERNEL_SLOTS];
    if (info->version != ((1u << 24) | sizeof *info)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    unsigned have = utilization(gpu, info->lastSeenTimeStamp, found);
    if (!have) {
        info->processSamplesCount = 0;
        return NVML_ERROR_NOT_FOUND;
    }
    if (!info->procUtilArray || info->processSamplesCount < have) {
        info->processSamplesCount = have;
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    for (unsigned i = 0; i < have; i++)
        info->procUtilArray[i] = (nvmlProcessUtilizationInfo_t){
            found[i].timeStamp, found[i].pid, found[i].smUtil, found[i].memUtil,
            found[i].encUtil, found[i].decUtil, 0, 0};
    info->processSamplesCount = have;
    return NVML_SUCCESS;
}
