/* The system, the handles, and what does not change while a GPU is there. */
#include "core.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define COPY(member, out, length) fake_copy_text(member, sizeof(member), out, length)

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length) {
    FAKE_CALL(nvmlSystemGetDriverVersion);
    FAKE_VALUES(version, length);
    return COPY(fake_state->driver_version, version, length);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length) {
    FAKE_CALL(nvmlSystemGetNVMLVersion);
    return COPY(fake_state->nvml_version, version, length);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    FAKE_CALL(nvmlSystemGetCudaDriverVersion);
    FAKE_VALUE(version);
    *version = (int)fake_state->cuda_version;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    FAKE_CALL(nvmlSystemGetCudaDriverVersion_v2);
    FAKE_VALUE(version);
    *version = (int)fake_state->cuda_version;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length) {
    FAKE_CALL(nvmlSystemGetProcessName);
    char path[32], text[1024];
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *file = fopen(path, "re");
    if (!file) return NVML_ERROR_NOT_FOUND;
    size_t got = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[got] = 0;
    return fake_copy_text(text, sizeof text, name, length);
}

#define COUNT(name) \
    nvmlReturn_t name(unsigned *count) { \
        FAKE_CALL(name); \
        *count = fake_state->gpu_count; \
        FAKE_VALUE(count); \
        return NVML_SUCCESS; \
    }
COUNT(nvmlDeviceGetCount)
COUNT(nvmlDeviceGetCount_v2)

/* A lost GPU's handle is refused, and so is one whose fault for the call is set. */
static nvmlReturn_t hand_out(fake_call_t *call, unsigned gpu, nvmlDevice_t *device) {
    nvmlReturn_t error = fake_enter_gpu(call, gpu);
    if (error) return error;
    *device = &fake_devices[gpu];
    return NVML_SUCCESS;
}

#define BY_INDEX(name) \
    nvmlReturn_t name(unsigned index, nvmlDevice_t *device) { \
        FAKE_CALL(name); \
        if (index >= fake_state->gpu_count || !device) return NVML_ERROR_INVALID_ARGUMENT; \
        FAKE_VALUE(device); \
        return hand_out(&call, index, device); \
    }
BY_INDEX(nvmlDeviceGetHandleByIndex)
BY_INDEX(nvmlDeviceGetHandleByIndex_v2)

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    FAKE_CALL(nvmlDeviceGetHandleByUUID);
    if (!uuid || !device) return NVML_ERROR_INVALID_ARGUMENT;
    FAKE_VALUE(device);
    for (unsigned gpu = 0; gpu < fake_state->gpu_count; gpu++) {
        fake_gpu_t *card = &fake_state->gpus[gpu];
        if (strncmp(card->uuid, uuid, sizeof card->uuid) == 0) return hand_out(&call, gpu, device);
        for (int mig = 0; mig < FAKE_MAX_MIG; mig++)
            if (card->mig[mig].present && strncmp(card->mig[mig].uuid, uuid, 80) == 0) {
                *device = &fake_mig_devices[gpu][mig];
                return NVML_SUCCESS;
            }
    }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device) {
    FAKE_CALL(nvmlDeviceGetHandleBySerial);
    for (unsigned gpu = 0; gpu < fake_state->gpu_count; gpu++)
        if (strncmp(fake_state->gpus[gpu].serial, serial, 32) == 0)
            return hand_out(&call, gpu, device);
    return NVML_ERROR_NOT_FOUND;
}

static nvmlReturn_t by_bus_id(fake_call_t *call, const char *text, nvmlDevice_t *device) {
    unsigned domain, bus;
    if (!text || sscanf(text, "%x:%x:", &domain, &bus) != 2) return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned gpu = 0; gpu < fake_state->gpu_count; gpu++)
        if (fake_state->gpus[gpu].pci_domain == domain && fake_state->gpus[gpu].pci_bus == bus)
            return hand_out(call, gpu, device);
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *text, nvmlDevice_t *device) {
    FAKE_CALL(nvmlDeviceGetHandleByPciBusId);
    return by_bus_id(&call, text, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *text, nvmlDevice_t *device) {
    FAKE_CALL(nvmlDeviceGetHandleByPciBusId_v2);
    return by_bus_id(&call, text, device);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length) {
    FAKE_DEVICE_CALL(nvmlDeviceGetName, device, FOR_CARD_OR_MIG);
    FAKE_VALUES(name, length);
    if (device->mig >= 0) return COPY(gpu->mig[device->mig].name, name, length);
    return COPY(gpu->name, name, length);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length) {
    FAKE_DEVICE_CALL(nvmlDeviceGetUUID, device, FOR_CARD_OR_MIG);
    FAKE_VALUES(uuid, length);
    if (device->mig >= 0) return COPY(gpu->mig[device->mig].uuid, uuid, length);
    return COPY(gpu->uuid, uuid, length);
}

#define TEXT(name, member) \
    nvmlReturn_t name(nvmlDevice_t device, char *text, unsigned length) { \
        FAKE_DEVICE_CALL(name, device, FOR_CARD); \
        if (!gpu->member[0]) return NVML_ERROR_NOT_SUPPORTED; \
        return COPY(gpu->member, text, length); \
    }
TEXT(nvmlDeviceGetSerial, serial)
TEXT(nvmlDeviceGetVbiosVersion, vbios)
TEXT(nvmlDeviceGetBoardPartNumber, part_number)

#define NUMBER(name, value) \
    nvmlReturn_t name(nvmlDevice_t device, unsigned *out) { \
        FAKE_DEVICE_CALL(name, device, FOR_CARD); \
        if (!out) return NVML_ERROR_INVALID_ARGUMENT; \
        *out = (value); \
        FAKE_VALUE(out); \
        return NVML_SUCCESS; \
    }
NUMBER(nvmlDeviceGetMinorNumber, gpu->minor_number)
NUMBER(nvmlDeviceGetBrand, gpu->brand)
NUMBER(nvmlDeviceGetArchitecture, gpu->architecture)
NUMBER(nvmlDeviceGetNumGpuCores, gpu->cores)
NUMBER(nvmlDeviceGetMemoryBusWidth, gpu->memory_bus_bits)
NUMBER(nvmlDeviceGetPersistenceMode, gpu->persistence_mode)
NUMBER(nvmlDeviceGetComputeMode, gpu->compute_mode)
NUMBER(nvmlDeviceGetDisplayActive, gpu->display_active)
NUMBER(nvmlDeviceGetDisplayMode, gpu->display_mode)
NUMBER(nvmlDeviceGetVirtualizationMode, gpu->virtualization_mode)

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index) {
    FAKE_DEVICE_CALL(nvmlDeviceGetIndex, device, FOR_CARD_OR_MIG);
    *index = device->mig >= 0 ? (unsigned)device->mig : device->gpu;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    FAKE_DEVICE_CALL(nvmlDeviceGetCudaComputeCapability, device, FOR_CARD_OR_MIG);
    FAKE_VALUE(major);
    FAKE_VALUE(minor);
    *major = (int)gpu->compute_major;
    *minor = (int)gpu->compute_minor;
    return NVML_SUCCESS;
}

static void fill_pci(const fake_gpu_t *gpu, nvmlPciInfo_t *pci) {
    memset(pci, 0, sizeof *pci);
    pci->domain = gpu->pci_domain;
    pci->bus = gpu->pci_bus;
    pci->pciDeviceId = gpu->pci_device_id;
    pci->pciSubSystemId = gpu->pci_subsystem_id;
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:00.0", gpu->pci_domain & 0xffff,
             gpu->pci_bus & 0xff);
    snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:00.0", gpu->pci_domain, gpu->pci_bus & 0xff);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    FAKE_DEVICE_CALL(nvmlDeviceGetPciInfo_v3, device, FOR_CARD);
    FAKE_VALUE(pci);
    fill_pci(gpu, pci);
    return NVML_SUCCESS;
}

static void fill_old_pci(const fake_gpu_t *gpu, nvmlPciInfo_v2_t *old) {
    nvmlPciInfo_t pci;
    fill_pci(gpu, &pci);
    memset(old, 0, sizeof *old);
    memcpy(old->busId, pci.busIdLegacy, sizeof old->busId);
    old->domain = pci.domain;
    old->bus = pci.bus;
    old->pciDeviceId = pci.pciDeviceId;
    old->pciSubSystemId = pci.pciSubSystemId;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_v2_t *pci) {
    FAKE_DEVICE_CALL(nvmlDeviceGetPciInfo_v2, device, FOR_CARD);
    fill_old_pci(gpu, pci);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_v2_t *pci) {
    FAKE_DEVICE_CALL(nvmlDeviceGetPciInfo, device, FOR_CARD);
    fill_old_pci(gpu, pci);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned *node) {
    FAKE_DEVICE_CALL(nvmlDeviceGetNumaNodeId, device, FOR_CARD);
    if (gpu->numa_node < 0) return NVML_ERROR_NOT_SUPPORTED;
    *node = (unsigned)gpu->numa_node;
    return NVML_SUCCESS;
}

static void fill_set(uint64_t bits, unsigned size, unsigned long *set) {
    for (unsigned i = 0; i < size; i++) set[i] = i ? 0 : (unsigned long)bits;
}

nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned size, unsigned long *set) {
    FAKE_DEVICE_CALL(nvmlDeviceGetCpuAffinity, device, FOR_CARD);
    fill_set(gpu->cpu_affinity, size, set);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned size, unsigned long *set,
                                         unsigned scope) {
    FAKE_DEVICE_CALL(nvmlDeviceGetMemoryAffinity, device, FOR_CARD);
    (void)scope;
    fill_set(gpu->memory_affinity, size, set);
    return NVML_SUCCESS;
}
