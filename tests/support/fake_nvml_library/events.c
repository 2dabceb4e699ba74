/* Event sets: each hands out, once, the events of its GPUs since they were registered in it. */
#include <stdlib.h>

#include "core.h"

struct fake_event_set {
    unsigned long long kinds[FAKE_MAX_GPUS]; /* 0: not registered */
    uint32_t taken[FAKE_MAX_GPUS];
};

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
    FAKE_CALL(nvmlEventSetCreate);
    *set = calloc(1, sizeof **set);
    return *set ? NVML_SUCCESS : NVML_ERROR_MEMORY;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
    FAKE_CALL(nvmlEventSetFree);
    free(set);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types) {
    FAKE_DEVICE_CALL(nvmlDeviceGetSupportedEventTypes, device, FOR_CARD);
    FAKE_VALUE(types);
    *types = gpu->event_kinds;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types,
                                      nvmlEventSet_t set) {
    FAKE_DEVICE_CALL(nvmlDeviceRegisterEvents, device, FOR_CARD);
    if (!set || types & ~gpu->event_kinds) return NVML_ERROR_NOT_SUPPORTED;
    uint32_t index = (uint32_t)(gpu - fake_state->gpus);
    if (!set->kinds[index]) set->taken[index] = gpu->event_count;
    set->kinds[index] |= types;
    return NVML_SUCCESS;
}

/* Never waits: tests ask with a timeout of 0. */
nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms) {
    FAKE_CALL(nvmlEventSetWait_v2);
    FAKE_VALUE(data);
    (void)timeout_ms;
    if (!set) return NVML_ERROR_INVALID_ARGUMENT;
    int lost = 0;
    for (uint32_t index = 0; index < fake_state->gpu_count; index++) {
        fake_gpu_t *gpu = &fake_state->gpus[index];
        if (!set->kinds[index]) continue;
        nvmlReturn_t fault = fake_enter_gpu(&call, index);
        if (fault && fault != NVML_ERROR_GPU_IS_LOST) return fault;
        while (set->taken[index] < gpu->event_count) {
            fake_event_t event = gpu->events[set->taken[index]++ % FAKE_MAX_EVENTS];
            if (!(event.kind & set->kinds[index])) continue;
            *data = (nvmlEventData_t){(nvmlDevice_t)&fake_devices[index], event.kind, event.data,
                                      0xFFFFFFFFu, 0xFFFFFFFFu};
            return NVML_SUCCESS;
        }
        lost = lost || fault;
    }
    return lost ? NVML_ERROR_GPU_IS_LOST : NVML_ERROR_TIMEOUT;
}
