// What the log does, for programs of the same process that subscribe to the `diagnostics_channel`
// `flagstone.log`. Nobody subscribed costs one comparison a flush. Subscribers are called within the
// turn, before those that wait for the flush: what they throw is theirs.

import { type Channel, channel } from "node:diagnostics_channel";

export const logChannelName = "flagstone.log";

export type LogEvent =
  | {
      /** Written and synced. */
      readonly event: "flush";
      /** Folder of the log. */
      readonly path: string;
      readonly number: number;
      readonly records: number;
      readonly sizeBytes: number;
      readonly syncMs: number;
    }
  | {
      /** It takes nothing more. */
      readonly event: "failed";
      readonly path: string;
      readonly reason: string;
    };

const subscribed: Channel = channel(logChannelName);

export function tellLog(event: () => LogEvent): void {
  if (subscribed.hasSubscribers) subscribed.publish(event());
}
