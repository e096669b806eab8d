// A node on this machine: real clock, disk, LevelDB and network, assembled as this version is.

import {
  type Logger,
  nodeDisk,
  nodeNetwork,
  silentLogger,
  systemClock,
  systemRandom,
} from "../base/index.ts";
import { createClassicDriver } from "../kv/index.ts";
import type { Components } from "./assemble.ts";
import { assembleNode } from "./assembly.ts";
import type { Settings } from "./config/keys.ts";
import { type RunningNode, startNode } from "./node.ts";

export function localComponents(logger: Logger = silentLogger): Components {
  return {
    clock: systemClock,
    random: systemRandom,
    disk: nodeDisk,
    kv: createClassicDriver({ disk: nodeDisk }),
    network: nodeNetwork,
    logger,
  };
}

/** @throws NODE_* with a sentence for the operator. */
export function startLocalNode(settings: Settings, logger?: Logger): Promise<RunningNode> {
  return startNode(settings, localComponents(logger), assembleNode);
}
