// The face of the key-value room.
export * from "./classic.ts";
export * from "./gate.ts";
export * from "./kv.ts";
export { MemoryDriver, type MemoryOptions } from "./memory.ts";
export type { MemoryOperation } from "./memory-store.ts";
export { successorOf } from "./range.ts";
