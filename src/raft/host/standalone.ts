// A Raft node of its own: directory, log, network and host in one call, for programs that want a
// replicated state machine and nothing else of Flagstone.
//
// Keeps: one process a directory, which is formatted only when no member ever lived in it; the first
// members form the cluster together, and later starts go on as the same member; what was opened is
// closed in reverse order.

import {
  Closer,
  joinPath,
  type ListenAddress,
  type Logger,
  nodeDisk,
  nodeNetwork,
  silentLogger,
  systemClock,
  systemRandom,
} from "../../base/index.ts";
import { defaultLogSettings, type LogSettings, openLog } from "../../log/index.ts";
import type { NodeId } from "../core/types.ts";
import { raftErrors } from "../errors.ts";
import { lockRaftDir } from "./dir-lock.ts";
import { type Expected, formCluster } from "./forming.ts";
import type { Group } from "./group.ts";
import { openRaftHost, type RaftHost } from "./host.ts";
import { findRaftData, formatRaftDir, type Identity, readIdentity, type Uuid } from "./identity.ts";
import { beginLife, type Life } from "./life.ts";
import { defaultHostSettings, type HostSettings, type StateMachine } from "./ports.ts";
import { defaultStreamSettings, StreamTransport } from "./stream-transport.ts";
import { createTlsNetwork, type PeerCertificates } from "./tls-network.ts";

export type RaftNodeOptions = {
  readonly dir: string;
  /** The same at all members: 32 hexadecimal digits, drawn once. */
  readonly clusterId: Uuid;
  /** The number of this node in `members`. */
  readonly node: NodeId;
  /** All first members, the same list at each. */
  readonly members: readonly Expected[];
  /** Groups of all members, made at the first start. */
  readonly groups: readonly number[];
  readonly machineOf: (group: number) => StateMachine;
  /** Default: where the others reach this node. */
  readonly listen?: ListenAddress;
  /** Mutual TLS; without them the network must be trusted. */
  readonly certificates?: PeerCertificates;
  readonly settings?: HostSettings;
  readonly logSettings?: LogSettings;
  readonly logger?: Logger;
  /** Told once when the volume failed: the process must be started again. */
  readonly onFailure?: (error: Error) => void;
  /** Gives up waiting for the other first members. */
  readonly stop?: AbortSignal;
};

export type RaftNode = {
  readonly host: RaftHost;
  /** @throws RAFT_GROUP_UNKNOWN. */
  group(group: number): Group;
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
};

/**
 * Starts a node; at the first start waits until all members are there.
 * @throws RAFT_DIR_LOCKED, RAFT_DIR_WIPED, and as `formCluster`, `openLog` and `openRaftHost`.
 */
export async function startRaftNode(options: RaftNodeOptions): Promise<RaftNode> {
  const own = options.members.find(({ node }) => node === options.node);
  if (own === undefined) throw raftErrors.groupUnknown({ group: `with node ${options.node}` });
  const { logger = silentLogger, settings = defaultHostSettings } = options;
  const shared = { disk: nodeDisk, clock: systemClock, random: systemRandom, logger };
  const closer = new Closer();
  try {
    closer.own(await lockRaftDir(nodeDisk, options.dir));
    const identity = await openIdentity(options, own.siteId);
    const stop = options.stop ?? new AbortController().signal;
    const place = raftDir(options);
    const life = await beginLife(nodeDisk, place, systemRandom);
    const forming = createTransport(options, own, { identity, life, logger });
    await formCluster({ ...shared, transport: forming }, place, options.members, stop);
    const onFailure = (error: Error): void => host?.fail(error);
    const { logSettings = defaultLogSettings } = options;
    const log = closer.own(await openLog(logSettings, { ...shared, onFailure }, logDir(options)));
    let host: RaftHost | undefined;
    const transport = createTransport(options, own, { identity, life, logger });
    const told = options.onFailure ? { onFailure: options.onFailure } : {};
    const components = { ...shared, log, transport, machineOf: options.machineOf, ...told };
    host = closer.own(await openRaftHost(settings, components, { dir: place }));
    await openGroups(host, options);
    return createNode(host, closer);
  } catch (error) {
    await closer.close();
    throw error;
  }
}

function raftDir({ dir }: RaftNodeOptions): string {
  return joinPath(dir, "raft");
}

function logDir({ dir }: RaftNodeOptions): string {
  return joinPath(dir, "log");
}

async function openIdentity(options: RaftNodeOptions, siteId: Uuid): Promise<Identity> {
  const dir = raftDir(options);
  const { clusterId } = options;
  if ((await findRaftData(nodeDisk, dir)) !== undefined) {
    return readIdentity(nodeDisk, dir, { clusterId, siteId });
  }
  // The log is opened by members only: where one lies the rest was lost.
  const found = logDir(options);
  if (await nodeDisk.exists(found)) throw raftErrors.dirWiped({ dir, found });
  return formatRaftDir(nodeDisk, dir, { clusterId, siteId, random: systemRandom });
}

function createTransport(
  options: RaftNodeOptions,
  own: Expected,
  parts: { readonly identity: Identity; readonly life: Life | undefined; readonly logger: Logger },
): StreamTransport {
  const { certificates, listen = own.address } = options;
  const network = certificates ? createTlsNetwork(certificates) : nodeNetwork;
  return new StreamTransport(
    { ...defaultStreamSettings, listen },
    { network, clock: systemClock, ...parts },
  );
}

async function openGroups(host: RaftHost, options: RaftNodeOptions): Promise<void> {
  const voters = options.members.map(({ node }) => node);
  const configuration = { voters, learners: [] };
  for (const group of options.groups) {
    await host.ensureGroup({ group, node: options.node, configuration });
  }
}

function createNode(host: RaftHost, closer: Closer): RaftNode {
  const close = (): Promise<void> => closer.close();
  return {
    host,
    group: (group) => {
      const found = host.group(group);
      if (found === undefined) throw raftErrors.groupUnknown({ group });
      return found;
    },
    close,
    [Symbol.asyncDispose]: close,
  };
}
