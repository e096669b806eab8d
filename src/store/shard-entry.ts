// Entries of a shard on their way through its log, and who is told of their items.

import { type ByteWriter, type Counters, createCounters } from "../base/index.ts";
import type { Item } from "./machine.ts";

export type OpenEntry = {
  readonly writer: ByteWriter;
  readonly items: Item[];
  /** Where each item ends in the entry. */
  readonly ends: number[];
  /** Of all `items`. */
  count: number;
  lastUs: number;
};

/** A proposed entry; those before `told` know of it. */
export type WaitingEntry = {
  readonly index: number;
  /** What was proposed: other bytes under this index are somebody else's. */
  readonly payload: Buffer | undefined;
  readonly items: readonly Item[];
  readonly ends: readonly number[];
  told: number;
  /** Those who are told early were. */
  isEarlyTold: boolean;
};

/** Nobody will ever see it in the log. */
export const neverProposed = ({ items, ends }: OpenEntry): WaitingEntry => ({
  ...{ items, ends, payload: undefined },
  ...{ index: 0, told: 0, isEarlyTold: false },
});

const shardCounterHelp = {
  itemsCooked: "items decided by this leader",
  entriesProposed: "log entries proposed",
  entriesApplied: "log entries applied, replayed ones included",
  entriesLost: "log entries proposed here that another leader's took the place of",
  checkpoints: "checkpoints committed",
  checkpointsFailed: "checkpoints that did not come about",
  backlogsCopied: "times that entries were copied out of the log for want of a checkpoint",
  callbackErrors: "faults of those who were told about their items",
};

export const shardCounters = (): Counters<typeof shardCounterHelp> =>
  createCounters(shardCounterHelp);
