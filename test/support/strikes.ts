// What befalls one of several processes under test, and is over when the promise resolves.

import type { SeededRandom } from "../../src/base/index.ts";
import type { Links } from "./raft-links.ts";
import { type KvNode, sleep } from "./raft-processes.ts";

/** May resolve with a more exact name of what it did. */
export type Strike<Cluster> = (
  cluster: Cluster,
  victim: KvNode,
  random: SeededRandom,
) => Promise<string | undefined>;

type Linked = { readonly nodes: readonly KvNode[]; readonly links: Links };

export const kill: Strike<unknown> = async (_cluster, victim, random) => {
  await victim.stop("SIGKILL");
  await sleep(random.between(0, 1_500));
  victim.start();
  return undefined;
};

export const pause: Strike<unknown> = async (_cluster, victim, random) => {
  victim.signal("SIGSTOP");
  await sleep(random.between(500, 4_000));
  victim.signal("SIGCONT");
  return undefined;
};

export const cutOff =
  (isBothWays: boolean): Strike<Linked> =>
  async ({ nodes, links }, victim, random) => {
    for (const other of nodes) {
      links.cut(victim.node, other.node);
      if (isBothWays) links.cut(other.node, victim.node);
    }
    await sleep(random.between(500, 4_000));
    links.mend();
    return undefined;
  };
