// The face of the key-value room.
export * from "./classic.ts";
export * from "./gate.ts";
export * from "./kv.ts";
