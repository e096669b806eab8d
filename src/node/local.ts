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

/** What an embedding program may bring along. */
export type LocalOptions = {
  readonly logger?: Logger;
  readonly phase?: (name: string) => void;
};

export function localComponents(options: LocalOptions = {}): Components {
  return {
    clock: systemClock,
    random: systemRandom,
    disk: nodeDisk,
    kv: createClassicDriver({ disk: nodeDisk }),
    network: nodeNetwork,
    logger: options.logger ?? silentLogger,
    ...(options.phase === undefined ? {} : { phase: options.phase }),
  };
}

/** @throws NODE_* with a sentence for the operator. */
export function startLocalNode(settings: Settings, options?: LocalOptions): Promise<RunningNode> {
  return startNode(settings, localComponents(options), assembleNode);
}
