// A node of a cluster up to its store: member of the cluster, log, Raft host, roster, store, forwarder.
//
// Keeps: nothing is taken from peers before this start of the directory is counted; the first members
// form together, and later starts go on as the same member; what was opened is closed in reverse
// order. The owner holds the directory's lock, and ends the process after a failure.

import {
  type Clock,
  Closer,
  type Disk,
  type Histogram,
  isCodedError,
  joinPath,
  type ListenAddress,
  type Logger,
  type Network,
  parentDir,
  type Random,
  sleep,
} from "../base/index.ts";
import type { KvDriver } from "../kv/index.ts";
import { type LogSettings, openLog, type WriteAheadLog } from "../log/index.ts";
import {
  beginLife,
  defaultStreamSettings,
  formCluster,
  type Group,
  type HostSettings,
  type Identity,
  type Life,
  type Member,
  MemberTable,
  openRaftHost,
  type RaftHost,
  readIdentity,
  type StateMachine,
  StreamTransport,
} from "../raft/index.ts";
import {
  type LocalStore,
  openStore,
  type StoreSettings,
  storeSettingsDefault,
} from "../store/index.ts";
import { Controller } from "./controller.ts";
import { type RosterCommand, servingSites } from "./core/roster.ts";
import { clusterErrors } from "./errors.ts";
import { Forwarder } from "./forwarder.ts";
import { expectedOf, type Founding, identityOf, raftDirOf } from "./founding.ts";
import { checkEmpty, isMemberDir } from "./joining.ts";
import { MemberChannel, type NodeChannel } from "./node-channel.ts";
import { RaftLogs } from "./raft-logs.ts";
import { type ClockOffset, RosterClient } from "./roster-client.ts";
import { RosterMachine, rosterGroup } from "./roster-machine.ts";

export type ClusterNodeSettings = {
  /** Held by the owner's lock. */
  readonly dir: string;
  /** Of this node, among the first members. */
  readonly name: string;
  /** Undefined at a node that joined later: its directory says whom it belongs to. */
  readonly founding: Founding | undefined;
  /** A start is refused with a clock that is further off those of a majority. Default 10 s. */
  readonly clockOffMsMax?: number;
  /** Where the other members reach this node. */
  readonly listen: ListenAddress;
  readonly raft: HostSettings;
  readonly log: LogSettings;
  readonly store: Partial<Omit<StoreSettings, "dir" | "quarantineDir">>;
};

export type ClusterNodeComponents = {
  readonly disk: Disk;
  readonly kv: KvDriver;
  readonly clock: Clock;
  readonly random: Random;
  /** Of members: mutual TLS, or a network that must be trusted. */
  readonly network: Network;
  readonly logger: Logger;
  /** Of the log's syncs. */
  readonly syncTimes?: Histogram;
  /** The log has no room to go on, or has again. */
  readonly onFull?: (full: boolean) => void;
  /** With the map databases open, before the logs of messages are. */
  readonly prepare?: (opened: Pick<ClusterNode, "store" | "channel" | "host">) => Promise<void>;
  /** How far the start is. */
  readonly onPhase?: (phase: string) => void;
  /** Told once: nothing is acknowledged any more. */
  readonly onFailure: (error: Error) => void;
  /** Gives up waiting for other members, and closes. */
  readonly stop: AbortSignal;
};

export type ClusterNode = {
  readonly identity: Identity;
  /** The number of this node. */
  readonly node: number;
  readonly host: RaftHost;
  readonly log: WriteAheadLog;
  readonly logs: RaftLogs;
  /** Sites of the cluster, and changes of them. */
  readonly roster: RosterClient;
  readonly controller: Controller;
  /** Words to the other nodes; whoever owns this node lets it begin. */
  readonly channel: NodeChannel & Pick<MemberChannel, "begin">;
  /** Writes go to whoever leads their shard, reads are of what is here. */
  readonly store: LocalStore;
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
};

/**
 * Opens a node; resolves when its store serves. At the first start it waits for all first members, and
 * at every start for a majority.
 * @throws CLUSTER_FOUNDING_INVALID, RAFT_HOST_CLOSED after `stop`, and what `formCluster`, `openLog`,
 *   `openRaftHost` and `openStore` refuse.
 */
export async function openClusterNode(
  settings: ClusterNodeSettings,
  components: ClusterNodeComponents,
): Promise<ClusterNode> {
  const closer = new Closer();
  try {
    return await openInto(closer, settings, components);
  } catch (error) {
    await closer.close();
    throw error;
  }
}

async function openInto(
  closer: Closer,
  settings: ClusterNodeSettings,
  components: ClusterNodeComponents,
): Promise<ClusterNode> {
  const { disk, kv, clock, random, logger, stop } = components;
  const { dir } = settings;
  const membership = await beMember(settings, components);
  const { identity, life, node, voters } = membership;
  // What an earlier start of this node opened or said is another's.
  const start = life?.mark ?? random.bytes(16).toString("hex");

  let host: RaftHost | undefined;
  let failure: Error | undefined;
  const fail = (error: Error): void => {
    if (failure !== undefined || isCodedError(error, "RAFT_HOST_CLOSED")) return;
    failure = error;
    host?.fail(error);
    components.onFailure(error);
  };
  const shared = { disk, clock, random, logger };
  const log = closer.own(
    await openLog(
      settings.log,
      { ...shared, ...watchersOf(components), onFailure: fail },
      joinPath(dir, "log"),
    ),
  );
  const logs = new RaftLogs({ node, voters }, { clock, log, logger });
  const machine = new RosterMachine();
  const machineOf = (group: number): StateMachine =>
    group === rosterGroup ? machine : logs.machineOf(group);
  const transport = createTransport(settings, components, { identity, life });
  host = closer.own(
    await openRaftHost(
      settings.raft,
      { ...shared, log, transport, machineOf, onFailure: fail },
      { dir: raftDirOf(dir) },
    ),
  );
  await host.admit(membership.moved);
  logs.attach(host);
  machine.attach(host);
  // Whoever waits for a majority below is told that the groups have ended.
  const leave = (): void => void host?.close();
  stop.addEventListener("abort", leave);
  closer.defer(() => stop.removeEventListener("abort", leave));
  if (stop.aborted) leave();

  const group = await openRosterGroup(host, node, voters);
  const roster = new RosterClient({ host, machine, group, clock, logger });
  closer.defer(() => roster.close());
  const founding = foundCommand(settings, host.members());
  const controller = new Controller({ host, roster, clock, logger, founding });
  closer.defer(() => controller.close());
  components.onPhase?.("waiting for a majority of the cluster");
  await takePart(settings, { roster, node }, components);
  components.onPhase?.("opening the store");

  await makeFolder(disk, joinPath(dir, "db"));
  const channel = createChannel({ node, start, host, machine, logs }, components);
  closer.defer(() => channel.close());
  const forwarder = createForwarder({ node, start, logs }, components);
  const store = closer.own(
    await openStore(
      {
        ...storeSettingsDefault,
        ...settings.store,
        dir: joinPath(dir, "db"),
        quarantineDir: joinPath(dir, "quarantine"),
      },
      { disk, kv, log, clock, logger, onFailure: fail, shardLogs: logs, fronts: forwarder },
    ),
  );
  closer.defer(() => forwarder.close());
  await components.prepare?.({ store, channel, host });
  await store.start();
  const close = (): Promise<void> => closer.close();
  return {
    ...{ identity, node, host, log, logs, roster, controller, channel, store, close },
    [Symbol.asyncDispose]: close,
  };
}

function watchersOf({ syncTimes, onFull }: ClusterNodeComponents) {
  return {
    ...(syncTimes === undefined ? {} : { syncTimes }),
    ...(onFull === undefined ? {} : { onFull }),
  };
}

type Membership = {
  readonly identity: Identity;
  readonly life: Life | undefined;
  readonly node: number;
  /** Of groups that are made here; none where the node joined later. */
  readonly voters: readonly number[];
  /** First members that the configuration gives another address than the directory. */
  readonly moved: readonly Member[];
};

/** The directory is, or becomes, that of a member. */
async function beMember(
  settings: ClusterNodeSettings,
  components: ClusterNodeComponents,
): Promise<Membership> {
  const { disk, clock, random, logger, stop } = components;
  const { dir, founding, name } = settings;
  const raftDir = raftDirOf(dir);
  const isMember = await isMemberDir(disk, dir);
  if (!isMember && founding === undefined) throw clusterErrors.notMember({ dir });
  if (!isMember) await checkEmpty(disk, dir);
  const identity =
    founding === undefined
      ? await readIdentity(disk, raftDir)
      : await identityOf(disk, { dir, name, random }, founding);
  const life = await beginLife(disk, raftDir, random);
  const expected = founding === undefined ? [] : expectedOf(founding);
  if (!isMember) {
    const transport = createTransport(settings, components, { identity, life });
    components.onPhase?.("waiting for all first members of the cluster");
    await formCluster({ disk, clock, logger, transport }, raftDir, expected, stop);
  }
  // The rename that made it one may have been the last act of a process.
  if (isMember) await disk.syncDir(dir);
  const members = (await MemberTable.open(disk, raftDir)).all();
  const own = members.find(({ diskId }) => diskId === identity.diskId);
  if (own === undefined) throw clusterErrors.notMember({ dir });
  const moved = members.flatMap((member) => {
    const address = expected.find(({ node }) => node === member.node)?.address;
    const isSame = JSON.stringify(address) === JSON.stringify(member.address);
    return address === undefined || isSame || member.removed ? [] : [{ ...member, address }];
  });
  const voters = expected.map(({ node }) => node);
  return { identity, life, node: own.node, voters, moved };
}

async function openRosterGroup(
  host: RaftHost,
  node: number,
  voters: readonly number[],
): Promise<Group> {
  const group = rosterGroup;
  if (host.storedGroups().includes(group)) {
    const opened = await host.openGroup(group);
    const { configuration } = opened.status();
    // Nobody else stands, and nobody's vote is waited for.
    if (configuration.voters.join() === String(node)) opened.campaign();
    return opened;
  }
  if (voters.length === 0) return host.createGroup({ group, node });
  return host.createGroup({ group, node, configuration: { voters, learners: [] } });
}

function foundCommand(
  { founding }: ClusterNodeSettings,
  members: readonly Member[],
): (RosterCommand & { kind: "found" }) | undefined {
  if (founding === undefined) return undefined;
  const sites = expectedOf(founding).flatMap(({ node, address }) => {
    const member = members.find((each) => each.node === node);
    if (member === undefined) return [];
    const { siteId, diskId, name } = member;
    return [{ node, siteId, diskId, name, address, zone: "" }];
  });
  // Two members are no safer than one.
  const replicas = sites.length - (sites.length % 2 === 0 ? 1 : 0);
  return { kind: "found", cluster: founding.cluster, replicas, sites };
}

/** Waits until the roster has this site, looks at the clock, and becomes active. */
async function takePart(
  { clockOffMsMax = 10_000 }: ClusterNodeSettings,
  { roster, node }: { readonly roster: RosterClient; readonly node: number },
  { clock, stop, logger }: ClusterNodeComponents,
): Promise<void> {
  for (;;) {
    if (stop.aborted) throw clusterErrors.stopped({});
    const site = roster.roster.sites.get(node);
    if (site === undefined) {
      await sleep(clock, rosterWaitMs);
      continue;
    }
    if (site.state === "left") throw clusterErrors.left({ node });
    try {
      checkClock(await roster.clockOffsets(), clockOffMsMax);
      if (site.state === "joining") await roster.change({ kind: "activate", node });
      return;
    } catch (error) {
      if (!isCodedError(error, "CLUSTER_ROSTER_UNREACHED")) throw error;
      logger.warn("cluster.roster_unreached", { reason: error.message });
    }
  }
}

/** Refused where no majority agrees with this clock: whose is wrong is not known with fewer. */
function checkClock(offsets: readonly ClockOffset[], maxMs: number): void {
  const off = offsets.filter(({ aheadMs }) => Math.abs(aheadMs) > maxMs);
  const [first] = off;
  if (first === undefined || 2 * off.length < offsets.length + 1) return;
  const { node, aheadMs } = first;
  const offMs = Math.round(Math.abs(aheadMs));
  throw clusterErrors.clockOff({ offMs, which: aheadMs > 0 ? "ahead of" : "behind", node, maxMs });
}

const rosterWaitMs = 50;

function createTransport(
  { listen }: ClusterNodeSettings,
  { network, clock, logger }: ClusterNodeComponents,
  parts: { readonly identity: Identity; readonly life: Life | undefined },
): StreamTransport {
  return new StreamTransport(
    { ...defaultStreamSettings, listen },
    { network, clock, logger, ...parts },
  );
}

function createForwarder(
  opened: { readonly node: number; readonly start: string; readonly logs: RaftLogs },
  { clock, logger }: ClusterNodeComponents,
): Forwarder {
  const { node, start, logs } = opened;
  const forwarder = new Forwarder({
    ...{ peers: logs, clock, logger, counters: logs.counters },
    name: `node ${node}.${start}`,
  });
  logs.onTold = (shard, from, bytes) => forwarder.receive(shard, from, bytes);
  return forwarder;
}

function createChannel(
  opened: {
    readonly node: number;
    readonly start: string;
    readonly host: RaftHost;
    readonly machine: RosterMachine;
    readonly logs: RaftLogs;
  },
  { clock, logger }: ClusterNodeComponents,
): MemberChannel {
  const { node, start, host, machine, logs } = opened;
  const channel = new MemberChannel({
    ...{ node, start, clock, logger, counters: logs.counters },
    members: () => servingSites(machine.roster),
    send: (to, bytes) => host.tell(rosterGroup, to, bytes),
  });
  machine.onChannel = (from, bytes) => channel.receive(from, bytes);
  return channel;
}

/** Durable, so that what is made in it is. */
async function makeFolder(disk: Disk, path: string): Promise<void> {
  if (await disk.exists(path)) return;
  await disk.makeDir(path);
  await disk.syncDir(parentDir(path));
}
