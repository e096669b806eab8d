// What a member of a cluster that serves MQTT is assembled of: its replica of the store, and on it what
// a node by itself has (docs/decisions/093-sessions-across-nodes.md).
//
// The way down: listeners, clients, sessions; then as a store node.

import { assertPresent, Closer, sleep } from "../../base/index.ts";
import { LiveRoutes, type LiveRoutesParts } from "../../broker/peers/live-routes.ts";
import { type ClusterNode, servingSites } from "../../cluster/index.ts";
import { Across } from "../../session/across/across.ts";
import type { Assemble, AssembleContext, Assembled } from "../assemble.ts";
import { closeAfterFailure } from "../failed-start.ts";
import { prepareServing, type Serving } from "../serving.ts";
import { sessionNodes } from "./session-nodes.ts";
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
  let routes: LiveRoutes | undefined;
  const { member, parts } = await openMember(context, closer, async (opened) => {
    const peers = (of: LiveRoutesParts): LiveRoutes => {
      routes = new LiveRoutes(opened.channel, of);
      return routes;
    };
    serving = await prepareServing(context, closer, {
      ...{ ...opened, peers, nodes: sessionNodes(opened) },
      createAcross: (of) => new Across(of),
      isStuck: () => opened.host.status().some(({ leader }) => leader === 0),
    });
  });
  member.channel.begin();
  await othersHeard(context, member, assertPresent(routes, "the broker has made it"));
  const { parts: served, ...rest } = await assertPresent(serving, "it was prepared").begin();
  return { ...rest, parts: { ...parts, ...served }, close: () => closer.close() };
}

/**
 * What this node's clients publish shall reach whoever is subscribed at another node, from the first
 * message on. A member that is not reached is not waited for long.
 */
async function othersHeard(
  { components: { clock } }: AssembleContext,
  { roster, node }: ClusterNode,
  routes: LiveRoutes,
): Promise<void> {
  const endMs = clock.elapsedMs() + othersMsMax;
  const isHeard = (other: number): boolean => other === node || routes.knows(other);
  while (!servingSites(roster.roster).every(isHeard) && clock.elapsedMs() < endMs) {
    await sleep(clock, othersLookMs);
  }
}

/** As long as silence takes to be noticed. */
const othersMsMax = 2_000;
const othersLookMs = 20;
