/* Event sets: made, filled and freed; nothing ever happens in them. */
#include "core.h"

enum { EVENTS = 0x1F }; /* nvmlEventType*: errors of memory, P-state, Xid (8), clock */
static struct fake_event_set { int made; } the_set;

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
    FAKE_CALL(nvmlEventSetCreate);
    *set = &the_set;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
    FAKE_CALL(nvmlEventSetFree);
    return set == &the_set ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types) {
    FAKE_DEVICE_CALL(nvmlDeviceGetSupportedEventTypes, device, FOR_CARD);
    FAKE_VALUE(types);
    *types = EVENTS;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types,
                                      nvmlEventSet_t set) {
    FAKE_DEVICE_CALL(nvmlDeviceRegisterEvents, device, FOR_CARD);
    if (set != &the_set || types & ~(unsigned long long)EVENTS) return NVML_ERROR_INVALID_ARGUMENT;
    return NVML_SUCCESS;
}
