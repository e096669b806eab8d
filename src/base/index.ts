// The face of the bottom floor.
export * from "./assert.ts";
export * from "./bytes.ts";
export * from "./clock.ts";
export * from "./counters.ts";
export * from "./disk.ts";
export * from "./errors.ts";
export * from "./hash.ts";
export * from "./lifecycle.ts";
export * from "./log-port.ts";
export * from "./network.ts";
export * from "./node-disk.ts";
export * from "./random.ts";
export * from "./sim-calls.ts";
export * from "./sim-clock.ts";
export { SimDisk, type SimDiskOptions } from "./sim-disk.ts";
export type { FaultRule } from "./sim-faults.ts";
export type { SimDiskOperation } from "./sim-process-disk.ts";
