// Many groups on one disk: one log, one meta file, one frame a peer and turn, one tick for all.
//
// Keeps: cluster, site, disk and epoch stand on every message; the first IO error ends the node; a
// tick that comes late counts once, and followers then listen for their leader before they stand,
// once; a node that stalls again and again still stands.
// Leaves to the owner: the log, the transport, the machines, and who should be in which group.

import {
  type Cancel,
  type Clock,
  type Disk,
  joinPath,
  type Logger,
  type Random,
} from "../../base/index.ts";
import type { WriteAheadLog } from "../../log/index.ts";
import { encodeMessage } from "../codec.ts";
import type { Configuration, Message, NodeId } from "../core/types.ts";
import { raftErrors } from "../errors.ts";
import { createHostCounters, type HostCounters } from "./counters.ts";
import { createDiskSnapshots } from "./disk-snapshots.ts";
import { encodeNote, type FrameKind, type Letter } from "./frames.ts";
import { Group, type GroupHost, type GroupStatus } from "./group.ts";
import { bootGroup, emptySnapshot, isPristine, openSnapshot } from "./group-boot.ts";
import { type Identity, metaPath, readIdentity, type Uuid } from "./identity.ts";
import { Inbound } from "./inbound.ts";
import { type Member, MemberTable } from "./members.ts";
import { MetaFile } from "./meta-file.ts";
import { Outbox } from "./outbox.ts";
import type { HostSettings, SnapshotStore, StateMachine, Transport } from "./ports.ts";
import { SnapshotTransfers } from "./transfers.ts";

export type HostComponents = {
  readonly disk: Disk;
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: Logger;
  /** Shared with others; a group is a shard of it. The owner closes it, after the host. */
  readonly log: WriteAheadLog;
  readonly transport: Transport;
  readonly machineOf: (group: number) => StateMachine;
  /** Default: files below the directory of the host. */
  readonly snapshots?: SnapshotStore;
  /** Told once: the volume failed, and nothing is acknowledged any more. */
  readonly onFailure?: (error: Error) => void;
  /** This node is no longer a member of the group. */
  readonly onRemoved?: (group: number) => void;
};

export type NewGroup = {
  /** u32; also the number of its shard in the log, where no other shard may have it. */
  readonly group: number;
  /** The number of this node in it. */
  readonly node: NodeId;
  /** The same at all first members. A node that joins leaves it out, and is told. */
  readonly configuration?: Configuration;
  /** As the status of the group at its leader says; default 1: never recovered by force. */
  readonly epoch?: number;
};

/**
 * Opens the host of a formatted directory whose members are known.
 * @throws RAFT_DIR_MISSING, RAFT_DIR_WIPED, RAFT_DIR_DAMAGED, RAFT_DIR_NEWER,
 *   RAFT_IDENTITY_FOREIGN, RAFT_META_LOST, or what the disk says.
 */
export async function openRaftHost(
  settings: HostSettings,
  components: HostComponents,
  place: { readonly dir: string; readonly clusterId?: Uuid; readonly siteId?: Uuid },
): Promise<RaftHost> {
  const { disk, transport } = components;
  const identity = await readIdentity(disk, place.dir, place);
  const members = await MemberTable.open(disk, place.dir);
  const metas = await MetaFile.open(disk, metaPath(place.dir));
  const { damagedPlaces, mendedSlots } = metas;
  if (damagedPlaces > 0) components.logger.error("raft.metas_lost", { groups: damagedPlaces });
  if (mendedSlots > 0) components.logger.warn("raft.slots_mended", { slots: mendedSlots });
  const host = new RaftHost(settings, components, { dir: place.dir, identity, members, metas });
  try {
    await transport.start(host.transportEvents);
  } catch (error) {
    await metas.close();
    throw error;
  }
  host.start();
  return host;
}

type Parts = {
  readonly dir: string;
  readonly identity: Identity;
  readonly members: MemberTable;
  readonly metas: MetaFile;
};

export class RaftHost {
  readonly identity: Identity;
  readonly counters: HostCounters = createHostCounters();
  readonly transportEvents: Parameters<Transport["start"]>[0];
  readonly #settings: HostSettings;
  readonly #components: HostComponents;
  readonly #members: MemberTable;
  readonly #metas: MetaFile;
  readonly #snapshots: SnapshotStore;
  readonly #groupHost: GroupHost;
  readonly #outbox: Outbox;
  readonly #transfers: SnapshotTransfers;
  readonly #groups = new Map<number, Group>();
  readonly #opening = new Set<number>();
  readonly #awake = new Set<Group>();
  #paced: Array<() => void> = [];
  #proposedBytes = 0;
  #isTurnPlanned = false;
  #cancelTick: Cancel | undefined;
  #lastTickMs = 0;
  /** Ticks for which followers listen after a stall. */
  #graceTicks = 0;
  /** Ticks until another stall counts as one to listen after. */
  #noGraceTicks = 0;
  #failure: Error | undefined;
  #closing: Promise<void> | undefined;

  constructor(settings: HostSettings, components: HostComponents, parts: Parts) {
    this.#settings = settings;
    this.#components = components;
    this.identity = parts.identity;
    this.#members = parts.members;
    this.#metas = parts.metas;
    const chunkBytes = settings.snapshotChunkBytes;
    const snapshotDir = joinPath(parts.dir, "snapshots");
    this.#snapshots =
      components.snapshots ?? createDiskSnapshots(components.disk, snapshotDir, { chunkBytes });
    this.#outbox = new Outbox(this.identity, settings.frameBytesMax, (to, frame) =>
      this.#post(to, frame),
    );
    this.#groupHost = this.#createGroupHost(parts.dir);
    this.#transfers = new SnapshotTransfers({
      settings,
      counters: this.counters,
      logger: components.logger,
      snapshots: this.#snapshots,
      sendTo: (node, kind, body) => this.#sendTo(node, kind, body),
      failHost: (error) => this.fail(error),
    });
    const inbound = this.#createInbound();
    this.transportEvents = {
      onFrame: (frame) => {
        if (this.#failure === undefined && this.#closing === undefined) inbound.onFrame(frame);
      },
      onDown: (siteId) => this.#onDown(siteId),
    };
  }

  start(): void {
    this.#components.transport.setPeers(this.#peers());
    this.#lastTickMs = this.#components.clock.elapsedMs();
    this.#planTick();
  }

  get failure(): Error | undefined {
    return this.#failure;
  }

  members(): Member[] {
    return this.#members.all();
  }

  /** Groups of which term and vote cannot be read: they are stored here, and missing below. */
  get lostGroups(): number {
    return this.#metas.damagedPlaces;
  }

  /** Groups that are stored here, open or not, made to the end or not. */
  storedGroups(): number[] {
    return this.#metas.groups();
  }

  /**
   * Makes members known, durably, before they appear in a configuration.
   * @throws RAFT_MEMBER_CONFLICT, RAFT_LIMIT_REACHED.
   */
  async admit(members: readonly Member[]): Promise<void> {
    await this.#members.admit(members);
    this.#components.transport.setPeers(this.#peers());
  }

  /** Nothing of the node is taken any more, whatever it says; its number is spent. */
  async forget(node: NodeId): Promise<void> {
    await this.#members.remove(node);
    this.#components.transport.setPeers(this.#peers());
  }

  /**
   * Opens the group; makes it first where it is not stored, or where its making was cut off.
   * @throws as `createGroup`.
   */
  async ensureGroup(given: NewGroup): Promise<Group> {
    const isNew = !this.#metas.get(given.group) || (await this.#isUnfinished(given.group));
    return isNew ? this.createGroup(given) : this.openGroup(given.group);
  }

  /** @throws RAFT_GROUP_EXISTS, RAFT_META_LOST, RAFT_LIMIT_REACHED, and as `openGroup`. */
  async createGroup({ group, node, configuration, epoch = 1 }: NewGroup): Promise<Group> {
    if (this.#metas.get(group) !== undefined) {
      if (!(await this.#isUnfinished(group))) throw raftErrors.groupExists({ group });
    } else if ((await this.#hasSnapshot(group)) || this.#components.log.range(group)) {
      throw raftErrors.metaLost({ group, path: this.#groupHost.metaPath });
    }
    const hardState = { term: 0, vote: 0, commit: 0 };
    const life = { epoch, incarnation: 1, configurationIndex: 0 };
    const marks = { repairing: false, removed: false };
    await this.#metas.saved({ group, node, hardState, ...life, ...marks });
    const meta = configuration ? { ...emptySnapshot, configuration } : emptySnapshot;
    // The machine's empty state is not in it: a machine in memory begins with none.
    await this.#snapshots.write({ group, epoch, meta, machineVersion: 0 }, []);
    return this.openGroup(group);
  }

  /** @throws RAFT_GROUP_UNKNOWN, RAFT_META_LOST, RAFT_LIMIT_REACHED, RAFT_HOST_CLOSED. */
  async openGroup(group: number): Promise<Group> {
    this.#checkOpen();
    const open = this.#groups.get(group);
    if (open !== undefined) return open;
    const limit = this.#settings.groupsMax;
    if (this.#groups.size >= limit) throw raftErrors.limit({ what: "open groups", limit });
    if (this.#opening.has(group)) throw raftErrors.groupExists({ group });
    this.#opening.add(group);
    try {
      const machine = this.#components.machineOf(group);
      const boot = await bootGroup(group, this.#groupHost, machine);
      this.#checkOpen();
      const opened = new Group(boot, machine, this.#groupHost);
      this.#groups.set(group, opened);
      this.#wake(opened);
      return opened;
    } finally {
      this.#opening.delete(group);
    }
  }

  group(group: number): Group | undefined {
    return this.#groups.get(group);
  }

  /**
   * Says something to the machine of another member of a group here. It may be lost, repeated or
   * overtaken; false when it certainly was not sent.
   */
  tell(group: number, to: NodeId, data: Uint8Array): boolean {
    const open = this.#groups.get(group);
    if (open === undefined || data.length > this.#settings.frameBytesMax / 2) return false;
    const { epoch, incarnation, node } = open;
    return this.#sendTo(to, "note", encodeNote({ group, epoch, incarnation, node, data }));
  }

  status(): GroupStatus[] {
    return [...this.#groups.values()].map((group) => group.status());
  }

  /** The first IO error: nothing is sent or acknowledged after it. */
  fail(cause: Error): void {
    if (this.#failure !== undefined || this.#closing !== undefined) return;
    const failure = raftErrors.hostFailed({ reason: cause.message }, cause);
    this.#failure = failure;
    this.#components.logger.error("raft.host_failed", { reason: cause.message });
    this.#cancelTick?.();
    for (const group of this.#groups.values()) group.fail(failure);
    this.#components.onFailure?.(failure);
  }

  /** Stops without a word to the others; they take it for a crash. */
  close(): Promise<void> {
    this.#closing ??= this.#closeAll();
    return this.#closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #isUnfinished(group: number): Promise<boolean> {
    const known = this.#metas.get(group);
    const isBlank = known !== undefined && isPristine(known, this.#components.log);
    return isBlank && !(await this.#hasSnapshot(group));
  }

  async #hasSnapshot(group: number): Promise<boolean> {
    const found = await openSnapshot(group, this.#snapshots);
    if (typeof found === "object") await found.close();
    return found !== undefined;
  }

  async #closeAll(): Promise<void> {
    this.#cancelTick?.();
    const closed = raftErrors.hostClosed({});
    for (const group of this.#groups.values()) await group.close(closed);
    await this.#components.transport.close();
    await this.#transfers.close();
    await this.#metas.close();
    for (const settle of this.#paced.splice(0)) settle();
  }

  #createInbound(): Inbound {
    return new Inbound({
      clusterId: this.identity.clusterId,
      frameBytesMax: this.#settings.frameBytesMax,
      counters: this.counters,
      members: this.#members,
      groups: this.#groups,
      transfers: this.#transfers,
      sendTo: (node, kind, body) => this.#sendTo(node, kind, body),
      reply: (site, kind, body) => {
        this.#post(site, this.#outbox.frame(kind, body));
      },
      onRemoved: (group) => this.#components.onRemoved?.(group),
    });
  }

  #createGroupHost(dir: string): GroupHost {
    const { log, logger, clock, random } = this.#components;
    return {
      log,
      logger,
      random,
      settings: this.#settings,
      counters: this.counters,
      metas: this.#metas,
      metaPath: metaPath(dir),
      snapshots: this.#snapshots,
      nowMs: () => clock.elapsedMs(),
      send: (group, message) => this.#send(group, message),
      offer: (group, message) => this.#transfers.offer(group, message),
      wake: (group) => this.#wake(group),
      admit: (bytes) => this.#admit(bytes),
      noteBytes: (delta) => {
        this.#proposedBytes += delta;
      },
      later: (run) => {
        this.#paced.push(run);
      },
      pace: (settle) => this.#pace(settle),
      failHost: (error) => this.fail(error),
    };
  }

  #checkOpen(): void {
    if (this.#failure !== undefined) throw this.#failure;
    if (this.#closing !== undefined) throw raftErrors.hostClosed({});
  }

  #admit(bytes: number): void {
    const limit = this.#settings.proposedBytesMax;
    const isOver = this.#proposedBytes > 0 && this.#proposedBytes + bytes > limit;
    if (isOver) throw raftErrors.limit({ what: "bytes proposed and not applied", limit });
  }

  #pace(settle: () => void): void {
    if (this.#proposedBytes <= this.#settings.proposedBytesSoft) {
      settle();
      return;
    }
    this.counters.acksDelayed++;
    this.#paced.push(settle);
  }

  #peers(): Member[] {
    const own = this.identity.siteId;
    return this.#members.all().filter(({ siteId, removed }) => siteId !== own && !removed);
  }

  #planTick(): void {
    const { clock } = this.#components;
    this.#cancelTick = clock.schedule(this.#settings.tickMs, () => this.#tick());
  }

  #tick(): void {
    if (this.#failure !== undefined || this.#closing !== undefined) return;
    const nowMs = this.#components.clock.elapsedMs();
    const { tickMs, stallMs, raft } = this.#settings;
    const isLate = nowMs - this.#lastTickMs > tickMs + stallMs;
    this.#lastTickMs = nowMs;
    if (isLate) this.counters.stalls++;
    if (this.#noGraceTicks > 0) {
      this.#noGraceTicks--;
    } else if (isLate) {
      this.#graceTicks = raft.electionTicks;
      // Long enough for an election behind it: a node that stalls ever again would never stand.
      this.#noGraceTicks = 3 * raft.electionTicks;
    }
    const isAfterStall = this.#graceTicks > 0;
    if (isAfterStall) this.#graceTicks--;
    for (const group of this.#groups.values()) group.tick(isAfterStall);
    this.#transfers.tick();
    for (const settle of this.#paced.splice(0)) settle();
    // All groups' heartbeats of this tick are in one frame a peer.
    this.#turn();
    this.#planTick();
  }

  #wake(group: Group): void {
    this.#awake.add(group);
    this.#planTurn();
  }

  #planTurn(): void {
    if (this.#isTurnPlanned) return;
    this.#isTurnPlanned = true;
    this.#components.clock.soon(() => {
      this.#isTurnPlanned = false;
      this.#turn();
    });
  }

  #turn(): void {
    if (this.#failure !== undefined || this.#closing !== undefined) return;
    // What a group does may wake it again: bounded by what the core has to do.
    for (const group of this.#awake) {
      this.#awake.delete(group);
      group.turn();
    }
    this.#outbox.flush();
  }

  #send(group: Group, message: Message): void {
    const to = this.#members.get(message.to);
    if (to === undefined || to.removed) return;
    const { id, epoch, incarnation } = group;
    const letter: Letter = { group: id, epoch, incarnation, message: encodeMessage(message) };
    this.#outbox.add(to.siteId, letter);
    this.#planTurn();
  }

  #sendTo(node: NodeId, kind: FrameKind, body: Uint8Array): boolean {
    const to = this.#members.get(node);
    if (to === undefined || to.removed || this.#failure !== undefined) return false;
    return this.#post(to.siteId, this.#outbox.frame(kind, body));
  }

  #post(to: Uuid, frame: Buffer): boolean {
    const isTaken = this.#closing === undefined && this.#components.transport.send(to, frame);
    if (isTaken) this.counters.framesSent++;
    else this.counters.framesDropped++;
    return isTaken;
  }

  #onDown(siteId: Uuid): void {
    for (const member of this.#members.all()) {
      if (member.siteId !== siteId) continue;
      for (const group of this.#groups.values()) group.noteUnreachable(member.node);
    }
  }
}

export type { GroupStatus };
