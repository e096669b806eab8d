// What the admin room needs of the node it shows. `node` implements it; tests have their own.

import type { Slices } from "../base/index.ts";
import type { LivePage, TapListener } from "../broker/index.ts";
import type { GroupInspector, Retained, SessionInspector } from "../session/index.ts";
import type { Alarm, Store, StoreOperator, Ttv } from "../store/index.ts";
import type {
  AnswerOf,
  Check,
  ClientInfo,
  ConfigChangeInfo,
  ConfigValue,
  Doctor,
  InputOf,
  Status,
} from "./contract.ts";
import type { MetricSource } from "./metrics.ts";

export type NodeState = Status["state"];

export type OutgoingMessage = {
  readonly topic: string;
  readonly payload: Uint8Array;
  readonly qos: 0 | 1 | 2;
  readonly retain: boolean;
  readonly messageExpiryS: number | undefined;
  readonly contentType: string | undefined;
  readonly responseTopic: string | undefined;
  readonly userProperties: ReadonlyArray<readonly [string, string]>;
};

/** Connected clients, from memory. */
export interface ClientsPort {
  /** In order of client id, after `after`. Looks at every connection, keeps `countMax` of them. */
  list(
    query: { readonly prefix: string; readonly after: string; readonly countMax: number },
    slices: Slices,
  ): Promise<{
    readonly clients: readonly ClientInfo[];
    readonly next: string | undefined;
    readonly total: number;
  }>;
  /** Like `list`, of those without a durable session, with what they are subscribed to. */
  live(
    query: { readonly prefix: string; readonly after: string; readonly countMax: number },
    slices: Slices,
  ): Promise<LivePage>;
  get(clientId: string): ClientInfo | undefined;
  /** Ends the connection with 0x98. False when there is none. */
  kick(clientId: string): boolean;
}

/** What connections do, while they do it. */
export interface TapPort {
  /** Returns the end of it. */
  listen(listener: TapListener): () => void;
}

export type UserInfo = { readonly name: string; readonly form: string; readonly sinceUs: number };

/** Users and rules in the node's store. Changes are durable when they resolve, and hold then. */
export interface AccessControl {
  /** By name. */
  users(): readonly UserInfo[];
  /** @throws BROKER_USERS_INVALID. */
  putUser(name: string, password: string, isScram: boolean): Promise<void>;
  /** False: there was none. */
  removeUser(name: string): Promise<boolean>;
  rules(): string;
  /** @throws BROKER_RULES_INVALID with the line; nothing has changed then. */
  replaceRules(text: string): Promise<void>;
  /** @throws BROKER_RULES_INVALID with the line. */
  checkRules(text: string): void;
}

export type ClusterView = AnswerOf<"getCluster">;
export type JoinedCluster = AnswerOf<"joinCluster">;
export type JoiningSite = InputOf<"joinCluster">["body"];

/** Sites of the cluster. Changes are committed when they resolve. @throws CLUSTER_*. */
export interface ClusterPort {
  look(): Promise<ClusterView>;
  join(site: JoiningSite): Promise<JoinedCluster>;
  steer(verb: "evacuate" | "stay" | "forget", node: number): Promise<void>;
  move(node: number, address: string, zone: string | undefined): Promise<void>;
  setReplicas(count: number): Promise<void>;
}

/** What there is once a node is ready. */
export type RunningParts = {
  readonly clients: ClientsPort;
  readonly sessions: SessionInspector;
  readonly sharedGroups: GroupInspector;
  readonly retained: Retained;
  readonly store: Pick<Store, "subscribe" | "tail" | "logShards">;
  readonly operator: StoreOperator;
  readonly tap: TapPort;
  readonly access: AccessControl;
  /** Of a member of a cluster; what such a node does not serve throws ADMIN_NOT_SERVED. */
  readonly cluster?: ClusterPort;
  /** Databases neither come nor go: other members would know of it at their next start only. */
  readonly areDatabasesFixed?: boolean;
  /** Resolves when the message is durable, where that is asked for. */
  publish(message: OutgoingMessage): Promise<void>;
};

export type StatusFacts = Omit<
  Status,
  "receivedPerS" | "deliveredPerS" | "alarms" | "tasks" | "uptimeMs"
>;

export interface AdminHost {
  state(): NodeState;
  /** Undefined while the node is not ready. */
  running(): RunningParts | undefined;
  facts(): Promise<StatusFacts>;
  checks(): Promise<readonly Check[]>;
  doctor(): Promise<Doctor>;
  alarms(): readonly Alarm[];
  metrics(): readonly MetricSource[];
  configuration(): readonly ConfigValue[];
  /** Undefined where nothing can be read again. All or nothing. @throws CONFIG_*. */
  readonly reload: ((dryRun: boolean) => Promise<readonly ConfigChangeInfo[]>) | undefined;
  /** A line on how far a start is: `replaying shard 3`. */
  progress(): string;
}

export type { Ttv };
