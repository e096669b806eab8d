// What a member of a cluster that serves MQTT is assembled of: its replica of the store, and on it what
// a node by itself has (docs/decisions/093-sessions-across-nodes.md).
//
// The way down: listeners, clients, sessions; then as a store node.

import { assertPresent, Closer } from "../../base/index.ts";
import type { Assemble, AssembleContext, Assembled } from "../assemble.ts";
import { closeAfterFailure } from "../failed-start.ts";
import { prepareServing, type Serving } from "../serving.ts";
import { openMember } from "./store-node.ts";

export const assembleServingNode: Assemble = async (context) => {
  const closer = new Closer();
  try {
    return await assembleServing(context, closer);
  } catch (error) {
    await closeAfterFailure(closer, context.components.logger);
    throw error;
  }
};

async function assembleServing(context: AssembleContext, closer: Closer): Promise<Assembled> {
  let serving: Serving | undefined;
  const { member, parts } = await openMember(context, closer, async (place) => {
    serving = await prepareServing(context, closer, place);
  });
  // Nobody is subscribed anywhere before the others can be told of it.
  member.channel.begin();
  const { parts: served, ...rest } = await assertPresent(serving, "it was prepared").begin();
  return { ...rest, parts: { ...parts, ...served }, close: () => closer.close() };
}
