/* Memory errors, NVLink state and MIG. */
#include "core.h"

#include <string.h>

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned *current, unsigned *pending) {
    FAKE_DEVICE_CALL(nvmlDeviceGetEccMode, device, FOR_CARD);
    if (!gpu->ecc_supported) return NVML_ERROR_NOT_SUPPORTED;
    *current = gpu->ecc_mode;
    *pending = gpu->ecc_pending;
    return NVML_SUCCESS;
}

static nvmlReturn_t errors(const fake_gpu_t *gpu, unsigned type, unsigned counter,
                           unsigned long long *count) {
    if (!gpu->ecc_supported || !gpu->ecc_mode) return NVML_ERROR_NOT_SUPPORTED;
    if (type > 1 || counter > 1) return NVML_ERROR_INVALID_ARGUMENT;
    const uint64_t counts[2][2] = {{gpu->ecc_volatile_corrected, gpu->ecc_volatile_uncorrected},
                                   {gpu->ecc_aggregate_corrected, gpu->ecc_aggregate_uncorrected}};
    *count = counts[counter][type];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned type, unsigned counter,
                                         unsigned long long *count) {
    FAKE_DEVICE_CALL(nvmlDeviceGetTotalEccErrors, device, FOR_CARD);
    return errors(gpu, type, counter, count);
}

/* All of the simulated card's errors are in its device memory. */
nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, unsigned type, unsigned counter,
                                             unsigned location, unsigned long long *count) {
    FAKE_DEVICE_CALL(nvmlDeviceGetMemoryErrorCounter, device, FOR_CARD);
    if (location > 7) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t error = errors(gpu, type, counter, count);
    if (!error && location != 2) *count = 0;
    return error;
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned *correctable,
                                       unsigned *uncorrectable, unsigned *pending, unsigned *failed) {
    FAKE_DEVICE_CALL(nvmlDeviceGetRemappedRows, device, FOR_CARD);
    if (!gpu->remapped_supported) return NVML_ERROR_NOT_SUPPORTED;
    *correctable = gpu->remapped_correctable;
    *uncorrectable = gpu->remapped_uncorrectable;
    *pending = gpu->remapped_pending;
    *failed = gpu->remapped_failed;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, unsigned cause, unsigned *count,
                                       unsigned long long *addresses) {
    FAKE_DEVICE_CALL(nvmlDeviceGetRetiredPages, device, FOR_CARD);
    if (!gpu->ecc_supported || gpu->remapped_supported) return NVML_ERROR_NOT_SUPPORTED;
    unsigned have = cause == 0 ? gpu->retired_single : gpu->retired_double;
    if (!addresses || *count < have) {
        *count = have;
        return have ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
    }
    for (unsigned i = 0; i < have; i++) addresses[i] = 0x10000ull * (i + 1);
    *count = have;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device, unsigned *pending) {
    FAKE_DEVICE_CALL(nvmlDeviceGetRetiredPagesPendingStatus, device, FOR_CARD);
    if (!gpu->ecc_supported || gpu->remapped_supported) return NVML_ERROR_NOT_SUPPORTED;
    *pending = gpu->retired_pending;
    return NVML_SUCCESS;
}

static nvmlReturn_t check_link(const fake_gpu_t *gpu, unsigned link) {
    if (!gpu->nvlink_count) return NVML_ERROR_NOT_SUPPORTED;
    return link < gpu->nvlink_count ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, unsigned *active) {
    FAKE_DEVICE_CALL(nvmlDeviceGetNvLinkState, device, FOR_CARD);
    nvmlReturn_t error = check_link(gpu, link);
    if (!error) *active = !((gpu->nvlink_down >> link) & 1);
    return error;
}

nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned link, unsigned *version) {
    FAKE_DEVICE_CALL(nvmlDeviceGetNvLinkVersion, device, FOR_CARD);
    nvmlReturn_t error = check_link(gpu, link);
    if (!error) *version = gpu->nvlink_version;
    return error;
}

nvmlReturn_t nvmlDeviceGetNvLinkUtilizationCounter(nvmlDevice_t device, unsigned link,
                                                   unsigned counter, unsigned long long *rx,
                                                   unsigned long long *tx) {
    FAKE_DEVICE_CALL(nvmlDeviceGetNvLinkUtilizationCounter, device, FOR_CARD);
    (void)counter;
    nvmlReturn_t error = check_link(gpu, link);
    if (error) return error;
    uint64_t now = fake_now_us();
    *rx = fake_counter(gpu, gpu->nvlink_rx_kib, gpu->nvlink_since_us, gpu->nvlink_rx_kib_per_second,
                       now) / gpu->nvlink_count;
    *tx = fake_counter(gpu, gpu->nvlink_tx_kib, gpu->nvlink_since_us, gpu->nvlink_tx_kib_per_second,
                       now) / gpu->nvlink_count;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending) {
    FAKE_DEVICE_CALL(nvmlDeviceGetMigMode, device, FOR_CARD);
    if (!gpu->mig_supported) return NVML_ERROR_NOT_SUPPORTED;
    FAKE_VALUE(current);
    FAKE_VALUE(pending);
    *current = gpu->mig_mode;
    *pending = gpu->mig_pending;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count) {
    FAKE_DEVICE_CALL(nvmlDeviceGetMaxMigDeviceCount, device, FOR_CARD);
    FAKE_VALUE(count);
    *count = gpu->mig_supported ? 7 : 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index,
                                                 nvmlDevice_t *mig) {
    FAKE_DEVICE_CALL(nvmlDeviceGetMigDeviceHandleByIndex, device, FOR_CARD);
    if (!gpu->mig_supported) return NVML_ERROR_NOT_SUPPORTED;
    if (index >= FAKE_MAX_MIG) return NVML_ERROR_INVALID_ARGUMENT;
    if (!gpu->mig_mode || !gpu->mig[index].present) return NVML_ERROR_NOT_FOUND;
    FAKE_VALUE(mig);
    *mig = &fake_mig_devices[device->gpu][index];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t device, nvmlDevice_t *card) {
    FAKE_DEVICE_CALL(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, device, FOR_CARD_OR_MIG);
    if (device->mig < 0) return NVML_ERROR_INVALID_ARGUMENT;
    *card = &fake_devices[device->gpu];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *is_mig) {
    FAKE_DEVICE_CALL(nvmlDeviceIsMigDeviceHandle, device, FOR_CARD_OR_MIG);
    *is_mig = device->mig >= 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned *id) {
    FAKE_DEVICE_CALL(nvmlDeviceGetGpuInstanceId, device, FOR_CARD_OR_MIG);
    if (device->mig < 0) return NVML_ERROR_INVALID_ARGUMENT;
    FAKE_VALUE(id);
    *id = gpu->mig[device->mig].gpu_instance;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned *id) {
    FAKE_DEVICE_CALL(nvmlDeviceGetComputeInstanceId, device, FOR_CARD_OR_MIG);
    if (device->mig < 0) return NVML_ERROR_INVALID_ARGUMENT;
    *id = gpu->mig[device->mig].compute_instance;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes) {
    FAKE_DEVICE_CALL(nvmlDeviceGetAttributes_v2, device, FOR_CARD_OR_MIG);
    if (device->mig < 0) return NVML_ERROR_NOT_SUPPORTED;
    memset(attributes, 0, sizeof *attributes);
    attributes->gpuInstanceSliceCount = 1;
    attributes->computeInstanceSliceCount = 1;
    attributes->memorySizeMB = gpu->mig[device->mig].memory_total_bytes >> 20;
    return NVML_SUCCESS;
}
