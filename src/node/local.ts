// A node on this machine: real clock, disk, LevelDB and network, assembled as this version is. Each
// component can be brought along instead, so that tests run the same node on a simulated machine.

import { nodeDisk, nodeNetwork, silentLogger, systemClock, systemRandom } from "../base/index.ts";
import { createClassicDriver } from "../kv/index.ts";
import type { Assemble, Components } from "./assemble.ts";
import { assembleNode } from "./assembly.ts";
import type { Settings } from "./config/keys.ts";
import { lockHolder } from "./lock-holder.ts";
import { composeNode, type RunningNode } from "./node.ts";

/**
 * Starts a node that listens when the promise resolves. Several may run in one process, each on its
 * own data directory: `await startNode(createSettings({ data: { dir: "./data" } }))`.
 *
 * @throws NODE_* with a sentence for the operator, or what a room refused to start with.
 */
export function startNode(
  settings: Settings,
  components: Partial<Components> = {},
): Promise<RunningNode> {
  const all = { ...localComponents(), ...components };
  if (settings.cluster.name === "") return composeNode(settings, all, assembleNode);
  // A node by itself loads nothing of clusters.
  const assemble: Assemble = settings.cluster.storeOnly
    ? async (context) => (await import("./cluster/store-node.ts")).assembleStoreNode(context)
    : async (context) => (await import("./cluster/serving-node.ts")).assembleServingNode(context);
  return composeNode(settings, all, assemble);
}

export function localComponents(): Components {
  return {
    clock: systemClock,
    random: systemRandom,
    disk: nodeDisk,
    kv: createClassicDriver({ disk: nodeDisk }),
    network: nodeNetwork,
    logger: silentLogger,
    lockHolder,
    memoryBytes: () => process.memoryUsage.rss(),
  };
}
