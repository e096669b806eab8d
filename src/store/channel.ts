// What the store does besides taking and giving messages, for programs of the same process that
// subscribe to the `diagnostics_channel` `flagstone.store`. It is told once it is done and durable;
// subscribers are called within the turn: what they throw is theirs.

import { type Channel, channel } from "node:diagnostics_channel";
import type { ShardNumber } from "./api.ts";

export const storeChannelName = "flagstone.store";

export type StoreEvent = { readonly shard: ShardNumber } & (
  | { readonly event: "checkpoint"; readonly index: number; readonly timeUs: number }
  | { readonly event: "checkpoint_failed"; readonly reason: string }
  | { readonly event: "generation_begun" | "generation_packed"; readonly generation: number }
  | { readonly event: "generations_dropped"; readonly generations: readonly number[] }
);

const subscribed: Channel = channel(storeChannelName);

export function tellStore(event: StoreEvent): void {
  if (subscribed.hasSubscribers) subscribed.publish(event);
}
