// The simulator as others use it: one seed, many seeds, a failing seed made small.
export { Checker, Violation } from "./checker.ts";
export * from "./coverage.ts";
export * from "./flaws.ts";
export * from "./linearizability.ts";
export * from "./shrink.ts";
export * from "./simulation.ts";
export { type FaultName, faultNames } from "./swarm.ts";
