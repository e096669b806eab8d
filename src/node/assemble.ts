// The seam between a node's shell and what it serves. `composeNode` brings configuration, data
// directory and components; an `Assemble` builds the rooms above them (log, store, sessions,
// broker), opens the listeners when they are ready to serve, and owns all of it until `close`.

import type { ClusterPort } from "../admin/index.ts";
import type { Clock, CodedError, Disk, Histogram, Logger, Network, Random } from "../base/index.ts";
import type { Broker, ExchangeMethod, Hooks } from "../broker/index.ts";
import type { NodeChannel } from "../cluster/index.ts";
import type { KvDriver } from "../kv/index.ts";
import type { WriteAheadLog } from "../log/index.ts";
import type { AppendRequest, LocalStore } from "../store/index.ts";
import type { ConfigurationView } from "./admin/configuration-view.ts";
import type { Settings } from "./config/keys.ts";
import type { DataDir } from "./data-dir.ts";
import type { InsideFace } from "./embed/inside.ts";
import type { Security } from "./security/security.ts";

/** What a node is made of besides its settings. Each has a simulated twin. */
export type Components = {
  readonly clock: Clock;
  readonly random: Random;
  readonly disk: Disk;
  readonly kv: KvDriver;
  readonly network: Network;
  readonly logger: Logger;
  /** Told the name of each phase that a room reaches: tests end the process there. */
  readonly phase?: (name: string) => void;
  /** Where there is one: what may be shown and changed of the configuration. */
  readonly configuration?: ConfigurationView;
  /** Process id of the one that holds a lock file, where the system tells. */
  readonly lockHolder?: (lockFile: string) => number | undefined;
  /** More methods of enhanced authentication, beside SCRAM-SHA-256. */
  readonly exchanges?: readonly ExchangeMethod[];
  /** Of the program around. */
  readonly hooks?: readonly Hooks[];
  /** Memory that this process uses, for the overload protection. */
  readonly memoryBytes?: () => number;
};

/** Users, keys and rules of a running node. */
export type SecurityFace = Pick<
  Security,
  "users" | "rules" | "replaceRules" | "reload" | "certificates"
>;

export type AssembleContext = {
  readonly settings: Settings;
  readonly dataDir: DataDir;
  readonly components: Components;
  /**
   * Says that an acknowledgement can no longer be kept (an fsync failed, say). The node's `failed`
   * rejects with the first error; whoever started the node closes it.
   */
  fail(error: CodedError): void;
  /** How far the start is. */
  began(phase: string): void;
  /** The log has no room to go on. */
  spendBallast(): void;
};

/** A bound listener: its name in the settings and the address it really has. */
export type BoundListener = {
  readonly name: string;
  readonly type: "tcp" | "tls" | "ws" | "wss" | "unix";
  readonly host: string;
  /** 0 for a Unix socket. */
  readonly port: number;
  /** Of a Unix socket. */
  readonly path?: string;
  /** The methods that it asks, in their order. */
  readonly authentication: readonly string[];
};

/** A member of a cluster, as the HTTP interface needs it. */
export type StoreMember = {
  readonly name: string;
  /** `node 1, n1, of the cluster plant` */
  readonly label: string;
  readonly port: ClusterPort;
  readonly channel: NodeChannel;
  /** Resolves when a majority has the message. */
  append(request: AppendRequest): Promise<void>;
  /** Groups that nobody leads, as far as this node knows. */
  leaderless(): readonly number[];
  readonly counters: object;
};

/** What a node is assembled of, for those who look at it. */
export type NodeParts = {
  readonly log: WriteAheadLog;
  readonly store: LocalStore;
  /** Not at a store node. */
  readonly broker?: Broker;
  /** What the program that the node runs in can do with it; not at a store node. */
  readonly inside?: InsideFace;
  /** The cluster that it is a member of. */
  readonly member?: StoreMember;
  /** Of the log's syncs. */
  readonly syncTimes: Histogram;
};

export type Assembled = {
  readonly listeners: readonly BoundListener[];
  readonly parts: NodeParts;
  /** Not at a store node: nobody logs in there. */
  readonly security?: SecurityFace;
  /** Stops accepting, lets clients go, flushes, closes; in this order and once. */
  close(): Promise<void>;
};

/** Resolves when everything is replayed and loaded and the listeners accept. */
export type Assemble = (context: AssembleContext) => Promise<Assembled>;
