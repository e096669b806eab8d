// Whether a node writes well enough to lead a group. One whose flush hangs, or whose log has no
// space, keeps its clients waiting while another member may do better.
//
// Keeps: a leader that hangs for two elections steps down; one that has no space for an election
// hands over, and so does the next, until leadership meets a member that has.

import type { Logger } from "../../base/index.ts";
import type { WriteAheadLog } from "../../log/index.ts";
import type { Raft } from "../core/raft.ts";
import type { NodeId } from "../core/types.ts";
import type { HostCounters } from "./counters.ts";
import type { Flights } from "./flights.ts";
import type { HostSettings } from "./ports.ts";

export type WatchHost = {
  readonly log: WriteAheadLog;
  readonly settings: HostSettings;
  readonly counters: HostCounters;
  readonly logger: Logger;
  readonly nowMs: () => number;
};

export class WriteWatch {
  readonly #place: { readonly group: number; readonly node: NodeId };
  readonly #host: WatchHost;
  readonly #raft: Raft;
  readonly #flights: Flights;
  /** Ticks for which this leader's log has had no space. */
  #fullTicks = 0;

  constructor(
    place: { readonly group: number; readonly node: NodeId },
    host: WatchHost,
    parts: { readonly raft: Raft; readonly flights: Flights },
  ) {
    this.#place = place;
    this.#host = host;
    this.#raft = parts.raft;
    this.#flights = parts.flights;
  }

  /** Whether the oldest write has been under way for longer than so many elections. */
  hangsFor(elections: number): boolean {
    const { raft, tickMs } = this.#host.settings;
    return this.#hangsMs() > elections * raft.electionTicks * tickMs;
  }

  /** REQUIRES: this node leads. */
  stepDownIfHung(): void {
    if (!this.hangsFor(2)) return;
    const { counters, logger } = this.#host;
    counters.flushesHung++;
    logger.warn("raft.flush_hangs", { group: this.#place.group, hangsMs: this.#hangsMs() });
    this.#raft.stepDown();
  }

  /** REQUIRES: this node leads, and a tick has passed. */
  yieldWithoutSpace(): void {
    const { log, settings, counters, logger } = this.#host;
    this.#fullTicks = log.full ? this.#fullTicks + 1 : 0;
    if (this.#fullTicks < settings.raft.electionTicks) return;
    const heir = this.#nextVoter();
    if (heir === undefined || !this.#raft.transfer(heir).accepted) return;
    this.#fullTicks = 0;
    counters.fullLeadersYielded++;
    logger.warn("raft.full_leader_yields", { ...this.#place, to: heir });
  }

  /** The voter behind us, in a circle, among those that answer. */
  #nextVoter(): NodeId | undefined {
    const { peers, configuration } = this.#raft.status();
    const answering = new Set(peers.filter(({ active }) => active).map(({ node }) => node));
    const nodes = configuration.voters.filter((node) => answering.has(node));
    return nodes.find((node) => node > this.#place.node) ?? nodes[0];
  }

  #hangsMs(): number {
    return this.#flights.hangsMs(this.#host.nowMs());
  }
}
