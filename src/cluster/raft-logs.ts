// The logs of all replicated shards of a node: each is the machine of the group that has its number.

import type { Clock, Logger } from "../base/index.ts";
import type { WriteAheadLog } from "../log/index.ts";
import type { Group, RaftHost, StateMachine } from "../raft/index.ts";
import type { ShardLog, ShardLogs } from "../store/index.ts";
import { Copies } from "./copies.ts";
import type { KeepSettings } from "./core/kept-log.ts";
import { type ClusterCounters, createClusterCounters } from "./counters.ts";
import type { ForwardPeers } from "./forwarder.ts";
import { RaftLog } from "./raft-log.ts";
import type { CopySettings } from "./remote-copy.ts";

export type RaftLogsSettings = {
  /** The number of this node. */
  readonly node: number;
  /** Members of a group that is made here: the same at all of them. None: it is told by others. */
  readonly voters: readonly number[];
  /** Log that is kept for members that are away. */
  readonly keep?: KeepSettings;
  readonly copies?: CopySettings;
};

export type RaftLogsParts = {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly log: WriteAheadLog;
};

export class RaftLogs implements ShardLogs, ForwardPeers {
  readonly counters: ClusterCounters = createClusterCounters();
  readonly #settings: RaftLogsSettings;
  readonly #clock: Clock;
  readonly #log: WriteAheadLog;
  readonly #logs = new Map<number, RaftLog>();
  readonly #copies: Copies;
  #host: RaftHost | undefined;
  /** Takes what other members say about a shard. */
  onTold: ((shard: number, from: number, data: Uint8Array) => void) | undefined;

  constructor(settings: RaftLogsSettings, parts: RaftLogsParts) {
    this.#settings = settings;
    this.#clock = parts.clock;
    this.#log = parts.log;
    this.#copies = new Copies({
      ...{ clock: parts.clock, logger: parts.logger, counters: this.counters },
      settings: settings.copies,
      send: (shard, to, bytes) => void this.send(shard, to, bytes),
      supplyOf: (shard) => this.#logs.get(shard)?.supply,
    });
  }

  /** For the host's components. */
  readonly machineOf = (group: number): StateMachine => {
    const log = this.#logs.get(group);
    if (log === undefined) throw new Error(`group ${group} is opened by its shard alone`);
    return log;
  };

  /** Closes the circle of host and machines; called once, before a shard is opened. */
  attach(host: RaftHost): void {
    this.#host = host;
  }

  open(shard: number): ShardLog {
    const log = new RaftLog(shard, {
      clock: this.#clock,
      counters: this.counters,
      recordBytesMax: this.#log.payloadBytesMax,
      openGroup: (opened) => this.#openGroup(opened),
      onTold: (number, from, data) => {
        if (!this.#copies.receive(number, from, data)) this.onTold?.(number, from, data);
      },
      copyFrom: (number, node) => this.#copies.from(number, node),
      keep: this.#settings.keep,
    });
    this.#logs.set(shard, log);
    return log;
  }

  get node(): number {
    return this.#settings.node;
  }

  leaderOf(shard: number): number {
    return this.#host?.group(shard)?.leader ?? 0;
  }

  send(shard: number, to: number, bytes: Uint8Array): boolean {
    return this.#host?.tell(shard, to, bytes) ?? false;
  }

  async #openGroup(log: RaftLog): Promise<Group> {
    const host = this.#host;
    if (host === undefined) throw new Error("a shard was opened before its host");
    const { node, voters } = this.#settings;
    const { shard: group } = log;
    if (voters.length === 0) return host.ensureGroup({ group, node });
    return host.ensureGroup({ group, node, configuration: { voters, learners: [] } });
  }
}
