// What the parts of one simulation share. Random sources are split by concern, so that leaving a
// fault out, or shrinking one concern, does not reshuffle the others.

import type { SeededRandom } from "../../base/index.ts";
import type { Configuration, NodeId } from "../core/types.ts";
import type { Checker } from "./checker.ts";
import type { Coverage } from "./coverage.ts";
import type { FlawName } from "./flaws.ts";
import type { ClientHistory } from "./history.ts";
import type { SimNetwork } from "./network.ts";
import type { EventQueue } from "./queue.ts";
import type { Swarm } from "./swarm.ts";

export type SimContext = {
  readonly queue: EventQueue;
  readonly swarm: Swarm;
  readonly coverage: Coverage;
  readonly checker: Checker;
  readonly history: ClientHistory;
  readonly network: SimNetwork;
  /** Every node there is, members or not. */
  readonly ids: readonly NodeId[];
  readonly firstConfiguration: Configuration;
  readonly flaw: FlawName | undefined;
  /** Draws of election time-outs. */
  readonly timeouts: SeededRandom;
  readonly random: { readonly disk: SeededRandom; readonly schedule: SeededRandom };
  /** Adds a line to the trace, if one is kept. */
  readonly note: (text: () => string) => void;
  /** Incarnation of a node's log. */
  readonly incarnationOf: (node: NodeId) => number;
  /** Whether an entry is durable on a node, up or down. */
  readonly holds: (node: NodeId, index: number, term: number) => boolean;
};
