/* A stand-in for the driver's libnvidia-ml.so.1 with two GPUs of known readings, so that the tests drive the real
 * bindings. GPU 0 gives everything. GPU 1 lacks most, as virtual GPUs do. NVML_STUB chooses what fails at the start:
 * "not_loaded", "no_gpus", "lost" (GPU 1 has fallen off the bus). Compiled with -DOLD_DRIVER, the functions that
 * drivers before 535 lack are left out. While the file that NVML_STUB_FAULT names exists, each call on the GPU that its
 * first number names is answered with the error that its second names, or not at all where that is negative. With NVML_STUB_PERIOD_MS, GPU 0 is used by
 * turns 90 and 10 %, half of that time each, in samples of 20 ms up to now. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, NOT_LOADED = 9, LOST = 15 };
enum { SAMPLES = 5 };

typedef struct { int index; } Gpu;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned int pid; unsigned long long used; unsigned int gpu_instance, compute_instance; } Process;
typedef struct { unsigned long long time_us; union { double d; unsigned int ui; unsigned long long ull; } value; } Sample;

static Gpu gpus[2] = {{0}, {1}};

static int mode(const char *name) {
    const char *set = getenv("NVML_STUB");
    return set != NULL && strcmp(set, name) == 0;
}

static int fault(const Gpu *gpu) {
    const char *path = getenv("NVML_STUB_FAULT");
    int index, code;
    do { /* a negative code hangs until the file says otherwise */
        FILE *file = path != NULL ? fopen(path, "r") : NULL;
        index = -1, code = SUCCESS;
        if (file == NULL) return SUCCESS;
        if (fscanf(file, "%d %d", &index, &code) != 2 || index != gpu->index) code = SUCCESS;
        fclose(file);
    } while (code < 0 && usleep(20000) == 0);
    return code;
}

#define ANSWER_FAULT(gpu) do { int code = fault(gpu); if (code != SUCCESS) return code; } while (0)

int nvmlInitWithFlags(unsigned int flags) { return mode("not_loaded") ? NOT_LOADED : SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }

int nvmlSystemGetDriverVersion(char *text, unsigned int length) {
    strncpy(text, "550.54.15", length);
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned int *count) {
    *count = mode("no_gpus") ? 0 : 2;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, Gpu **gpu) {
    if (index == 1 && mode("lost")) return LOST;
    *gpu = &gpus[index];
    return SUCCESS;
}

int nvmlDeviceGetName(Gpu *gpu, char *text, unsigned int length) {
    strncpy(text, gpu->index ? "Stub GPU B" : "Stub GPU A", length);
    return SUCCESS;
}

int nvmlDeviceGetUUID(Gpu *gpu, char *text, unsigned int length) {
    strncpy(text, gpu->index ? "GPU-b" : "GPU-a", length);
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(Gpu *gpu, Memory *memory) {
    ANSWER_FAULT(gpu);
    static unsigned long long used = 0;
    memory->total = gpu->index ? 8000000000ULL : 16000000000ULL;
    memory->used = gpu->index ? 123 : 1000 * ++used; /* GPU 0: one more kilobyte at each call */
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(Gpu *gpu, unsigned int kind, unsigned int *mhz) {
    ANSWER_FAULT(gpu);
    if (gpu->index == 1 && kind == 2) return NOT_SUPPORTED;
    *mhz = kind == 1 ? 1410 : kind == 2 ? 1593 : 1;
    return SUCCESS;
}

int nvmlDeviceGetMaxClockInfo(Gpu *gpu, unsigned int kind, unsigned int *mhz) {
    ANSWER_FAULT(gpu);
    if (gpu->index == 1 || kind != 1) return NOT_SUPPORTED;
    *mhz = 1980;
    return SUCCESS;
}

#ifndef OLD_DRIVER
int nvmlDeviceGetCurrentClocksEventReasons(Gpu *gpu, unsigned long long *reasons) {
    ANSWER_FAULT(gpu);
    *reasons = gpu->index ? 0x0 : 0x44; /* 0 is a reading too: nothing holds the clocks back */
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(Gpu *gpu, unsigned int *count, Process *processes) {
    ANSWER_FAULT(gpu);
    if (gpu->index == 1) return NO_PERMISSION;
    unsigned int room = *count;
    *count = 2;
    if (processes == NULL || room < 2) return INSUFFICIENT_SIZE;
    processes[0] = (Process){4321, 700, 0, 0};
    processes[1] = (Process){1234, 600, 0, 0};
    return SUCCESS;
}
#else
int nvmlDeviceGetCurrentClocksThrottleReasons(Gpu *gpu, unsigned long long *reasons) {
    ANSWER_FAULT(gpu);
    *reasons = gpu->index ? 0x1 : 0x8;
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v2(Gpu *gpu, unsigned int *count, Process *processes) {
    unsigned int room = *count;
    *count = 1;
    if (processes == NULL || room < 1) return INSUFFICIENT_SIZE;
    processes[0] = (Process){99, 600, 0, 0};
    return SUCCESS;
}
#endif

int nvmlDeviceGetPcieThroughput(Gpu *gpu, unsigned int counter, unsigned int *kilobytes) {
    ANSWER_FAULT(gpu);
    if (gpu->index == 1) return NOT_SUPPORTED;
    *kilobytes = counter == 1 ? 5000 : 70; /* 1 is to the GPU, 0 from it */
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(Gpu *gpu, unsigned int *milliwatts) {
    ANSWER_FAULT(gpu);
    if (gpu->index == 1) return NOT_SUPPORTED;
    *milliwatts = 312500;
    return SUCCESS;
}

/* With a period: the samples of every 20 ms since last_seen_us, up to now. */
static int live_samples(unsigned long long period_ms, unsigned long long last_seen_us, unsigned int *count,
                        Sample *samples) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    unsigned long long now_us = now.tv_sec * 1000000ULL + now.tv_nsec / 1000;
    unsigned long long first = last_seen_us / 20000 + 1, last = now_us / 20000;
    if (last >= first + 100) first = last - 99;
    if (last < first) return NOT_FOUND;
    unsigned int room = samples != NULL ? *count : 0;
    *count = last - first + 1;
    for (unsigned int n = 0; n < room && n < *count; n++) {
        samples[n].time_us = (first + n) * 20000;
        samples[n].value.ui = samples[n].time_us / 1000 % period_ms < period_ms / 2 ? 90 : 10;
    }
    return SUCCESS;
}

/* Samples every 20 ms from NVML_STUB_EPOCH_US on, 20 % more each; the last is repeated with time 0. */
int nvmlDeviceGetSamples(Gpu *gpu, unsigned int kind, unsigned long long last_seen_us, unsigned int *value_type,
                         unsigned int *count, Sample *samples) {
    ANSWER_FAULT(gpu);
    if (gpu->index == 1 || kind != 1) return NOT_SUPPORTED;
    *value_type = 1;
    const char *period_ms = getenv("NVML_STUB_PERIOD_MS");
    if (period_ms != NULL) return live_samples(strtoull(period_ms, NULL, 10), last_seen_us, count, samples);
    unsigned long long epoch_us = strtoull(getenv("NVML_STUB_EPOCH_US"), NULL, 10);
    if (last_seen_us >= epoch_us + (SAMPLES - 1) * 20000) return NOT_FOUND;
    if (samples != NULL) {
        for (unsigned int n = 0; n < SAMPLES; n++) {
            samples[n].time_us = epoch_us + n * 20000;
            samples[n].value.ui = 20 * (n + 1);
        }
        samples[SAMPLES].time_us = 0;
        samples[SAMPLES].value.ui = 77;
    }
    *count = SAMPLES + 1;
    return SUCCESS;
}
