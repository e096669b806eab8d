// What brings shards to where the roster wants them. Each node acts for the groups that it leads, one
// step a group, and the leader of the roster says where shards shall stand.
//
// Keeps: all that is under way stands in the roster and in the groups' configurations, so whoever leads
// next goes on; few shards are sent to new members at a time.
// For now a node holds all shards of the store, so a shard is placed on every active site.

import { type Cancel, type Clock, isCodedError, type Logger, toError } from "../base/index.ts";
import type { Group, GroupStatus, NodeId, RaftHost } from "../raft/index.ts";
import {
  type LeadView,
  nextHandOver,
  nextStep,
  type PlacementStep,
  placementOf,
} from "./core/placement.ts";
import { placeable, type RosterCommand, replicasMax, type Site } from "./core/roster.ts";
import type { RosterClient } from "./roster-client.ts";
import { rosterGroup } from "./roster-machine.ts";

export type ControllerSettings = {
  readonly tickMs: number;
  /** Groups of this node that are being sent to a new member at a time. */
  readonly movesMax: number;
  /** A member that was not heard of for so long is not there. */
  readonly silentMs: number;
  /** A member that lacks more entries of a shard has not caught up. */
  readonly lagEntriesMax: number;
};

export const defaultControllerSettings: ControllerSettings = {
  tickMs: 500,
  movesMax: 4,
  silentMs: 5_000,
  lagEntriesMax: 64,
};

export type ControllerParts = {
  readonly host: RaftHost;
  readonly roster: RosterClient;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Of the first members, for whoever leads first; undefined at a node that joined. */
  readonly founding: (RosterCommand & { kind: "found" }) | undefined;
  readonly settings?: ControllerSettings;
};

export class Controller {
  readonly #parts: ControllerParts;
  readonly #settings: ControllerSettings;
  /** When the member of a group was last heard of by its leader here. */
  readonly #heardMs = new Map<string, number>();
  #cancel: Cancel | undefined;
  #isBusy = false;
  #isDraining = false;
  #isClosed = false;

  constructor(parts: ControllerParts) {
    this.#parts = parts;
    this.#settings = parts.settings ?? defaultControllerSettings;
    this.#plan();
  }

  /**
   * Hands all leaderships over, and takes none. Resolves when this node leads nothing, or time is up.
   */
  async drain(withinMs: number): Promise<void> {
    this.#isDraining = true;
    const { clock } = this.#parts;
    const endMs = clock.elapsedMs() + withinMs;
    while (this.#led().length > 0 && clock.elapsedMs() < endMs && !this.#isClosed) {
      this.#handOver();
      await new Promise<void>((resolve) => {
        clock.schedule(100, resolve);
      });
    }
  }

  close(): void {
    this.#isClosed = true;
    this.#cancel?.();
  }

  #plan(): void {
    if (this.#isClosed) return;
    this.#cancel = this.#parts.clock.schedule(this.#settings.tickMs, () => {
      if (!this.#isBusy) void this.#turn();
      this.#plan();
    });
  }

  async #turn(): Promise<void> {
    this.#isBusy = true;
    try {
      if (this.#parts.roster.group.role === "leader") await this.#govern();
      await this.#move();
      this.#handOver();
    } catch (error) {
      // Whoever leads then goes on in a later turn.
      const isPassing = isCodedError(error) && error.kind !== "internal";
      const fields = { reason: toError(error).message };
      if (!isPassing) this.#parts.logger.error("cluster.controller_failed", fields);
      else this.#parts.logger.debug("cluster.step_waits", fields);
    } finally {
      this.#isBusy = false;
    }
  }

  /** As the leader of the roster: founds it, places shards, lets empty sites go. */
  async #govern(): Promise<void> {
    const { roster: client, founding, host } = this.#parts;
    if (client.roster.cluster === "") {
      if (founding !== undefined) await client.change(founding);
      return;
    }
    const groups = host.status();
    for (const { group } of groups) {
      const { roster } = client;
      const wanted = placementOf(group, this.#sitesFor(group), replicasMax);
      const placed = roster.placements.get(group);
      if (wanted.length === 0 || placed?.join() === wanted.join()) continue;
      await client.change({ kind: "place", shard: group, nodes: wanted });
    }
    for (const { node, state } of client.roster.sites.values()) {
      if (state !== "evacuating" || groups.some((group) => isIn(group, node))) continue;
      await client.change({ kind: "leave", node });
    }
  }

  /** One that joins is first told the roster, and becomes active by itself. */
  #sitesFor(group: number): Site[] {
    const { roster } = this.#parts.roster;
    if (group !== rosterGroup) return placeable(roster);
    return [...roster.sites.values()].filter(
      ({ state }) => state === "active" || state === "joining",
    );
  }

  /** One step of each group that this node leads. */
  async #move(): Promise<void> {
    const { host } = this.#parts;
    const led = this.#led();
    let moves = led.filter(({ configuration }) => configuration.learners.length > 0).length;
    for (const status of led) {
      const step = nextStep(this.#viewOf(status));
      if (step === undefined) continue;
      const isLearner = step.kind === "change" && step.change.op === "learner";
      if (isLearner && moves >= this.#settings.movesMax) continue;
      if (isLearner) moves++;
      const group = host.group(status.group);
      if (group !== undefined) await this.#take(group, step);
    }
  }

  async #take(group: Group, step: PlacementStep): Promise<void> {
    const { logger } = this.#parts;
    try {
      if (step.kind === "transfer") return group.transfer(step.to);
      await group.changeMembership(step.change);
      const { op, node } = step.change;
      logger.info("cluster.shard_moved", { shard: group.id, op, node });
    } catch (error) {
      // A change is under way, or another leads: the next turn looks again.
      if (!isCodedError(error) || error.kind === "internal") throw error;
      const fields = { shard: group.id, reason: error.message };
      logger.debug("cluster.step_waits", fields);
    }
  }

  #handOver(): void {
    const { host, roster } = this.#parts;
    const own = roster.group.node;
    const drains = this.#isDraining || roster.roster.sites.get(own)?.state === "evacuating";
    const counts = new Map<NodeId, number>();
    for (const { leader } of host.status()) counts.set(leader, (counts.get(leader) ?? 0) + 1);
    const views = this.#led()
      .filter(({ transferTo }) => transferTo === 0)
      .map((status): LeadView => ({ shard: status.group, ...this.#viewOf(status) }));
    const move = nextHandOver(own, views, counts, drains);
    if (move === undefined) return;
    try {
      host.group(move.shard)?.transfer(move.to);
    } catch (error) {
      if (!isCodedError(error)) throw error; // led by another meanwhile
    }
  }

  #led(): GroupStatus[] {
    return this.#parts.host
      .status()
      .filter(({ role, state }) => role === "leader" && state === "up");
  }

  #viewOf({ group, id: leader, configuration, commit, peers }: GroupStatus) {
    const nowMs = this.#parts.clock.elapsedMs();
    const caughtUp = new Set<NodeId>([leader]);
    for (const { node, active, match } of peers) {
      const key = `${group}/${node}`;
      if (active) this.#heardMs.set(key, nowMs);
      const heardMs = this.#heardMs.get(key) ?? Number.NEGATIVE_INFINITY;
      const isHere = nowMs - heardMs < this.#settings.silentMs;
      if (isHere && match + this.#settings.lagEntriesMax >= commit) caughtUp.add(node);
    }
    const placed = this.#parts.roster.roster.placements.get(group);
    // Not placed yet: it stays where it is.
    return { leader, configuration, caughtUp, wanted: placed ?? configuration.voters };
  }
}

function isIn({ configuration }: GroupStatus, node: NodeId): boolean {
  return configuration.voters.includes(node) || configuration.learners.includes(node);
}
