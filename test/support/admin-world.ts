// The HTTP application on paper: a simulated disk and clock, a node of plain records, and requests
// without a socket.

import { type AdminApp, createAdminApp } from "../../src/admin/app.ts";
import { AuditLog } from "../../src/admin/audit.ts";
import { ApiKeys } from "../../src/admin/keys.ts";
import type {
  AccessControl,
  AdminHost,
  NodeState,
  OutgoingMessage,
  RunningParts,
} from "../../src/admin/ports.ts";
import type { AdminSettings } from "../../src/admin/settings.ts";
import { Tasks } from "../../src/admin/tasks.ts";
import { Traces } from "../../src/admin/traces.ts";
import {
  createCounters,
  type LogFields,
  SeededRandom,
  SimClock,
  SimDisk,
} from "../../src/base/index.ts";
import { Tap } from "../../src/broker/index.ts";
import { createFrame } from "../../src/mqtt/index.ts";
import type { GroupInspector, SessionInspector, SessionSummary } from "../../src/session/index.ts";
import type {
  Alarm,
  DatabaseInfo,
  HoldInfo,
  ShardInfo,
  StoreOperator,
  Ttv,
} from "../../src/store/index.ts";
import { paperCluster } from "./paper-cluster.ts";

export const adminSettings: AdminSettings = {
  host: "127.0.0.1",
  port: 0,
  hosts: ["admin.example.org"],
  openMetrics: true,
  bodyBytesMax: 64 * 1024,
  requestsMax: 8,
  auditBytesMax: 64 * 1024,
};

export type Answer = {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  // biome-ignore lint/suspicious/noExplicitAny: whatever the test looks for
  readonly json: any;
};

export type Ask = {
  readonly method?: string;
  /** Default: the admin key. null: none. */
  readonly key?: string | null;
  readonly body?: unknown;
  readonly rawBody?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly remote?: string;
};

export type AdminWorld = Awaited<ReturnType<typeof adminWorld>>;

export async function adminWorld(settings: Partial<AdminSettings> = {}) {
  const clock = new SimClock();
  const disk = new SimDisk({ clock, random: new SeededRandom(1) });
  const random = new SeededRandom(2);
  const events: Array<{ event: string; fields: LogFields | undefined }> = [];
  const log = (event: string, fields?: LogFields): void => {
    events.push({ event, fields });
  };
  const logger = { debug: log, info: log, warn: log, error: log };
  const components = { disk, clock, random, logger };
  await clock.complete(disk.makeDir("admin"));
  const nowMs = (): number => Math.floor(clock.wallUs() / 1000);
  const opened = await clock.complete(ApiKeys.open("admin", { disk, random, logger, nowMs }));
  const { keys } = opened;
  const adminKey = opened.firstSecret as string;
  const operatorKey = (await clock.complete(keys.create("ops", "operator"))).secret;
  const viewerKey = (await clock.complete(keys.create("looks", "viewer"))).secret;
  const audit = new AuditLog("admin", 64 * 1024, { disk, logger });
  const tasks = await clock.complete(Tasks.open("admin", components));
  const traces = new Traces({ clock, random, logger });
  const node = paperNode();
  const app: AdminApp = createAdminApp(
    { ...adminSettings, ...settings },
    {
      ...{ host: node.host, keys, audit, tasks, traces, clock, disk, logger },
      ...{ version: "1.2.3", helpOf: () => "help" },
    },
  );
  async function ask(path: string, options: Ask = {}): Promise<Answer> {
    const { method = "GET", key = adminKey, body, rawBody, remote = "127.0.0.1" } = options;
    const headers = new Headers({ host: "127.0.0.1:18083" });
    if (key !== null) headers.set("authorization", `Bearer ${key}`);
    const text = rawBody ?? (body === undefined ? undefined : JSON.stringify(body));
    if (text !== undefined) headers.set("content-type", "application/json");
    for (const [name, value] of Object.entries(options.headers ?? {})) headers.set(name, value);
    const init = { method, headers, ...(text === undefined ? {} : { body: text }) };
    const request = new Request(`http://127.0.0.1:18083${path}`, init);
    const response = await clock.complete(app.fetch(request, { remote }));
    const answer = await response.text();
    return {
      status: response.status,
      headers: response.headers,
      text: answer,
      json: parsed(answer),
    };
  }
  return {
    clock,
    disk,
    events,
    keys,
    audit,
    tasks,
    traces,
    node,
    app,
    ask,
    adminKey,
    operatorKey,
    viewerKey,
  };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

export function paperTtv(topic: string, payload: string, timeUs = 1_000_000): Ttv {
  const frame = createFrame({ topic, payload: Buffer.from(payload), qos: 1, retain: true });
  return {
    ...{ topic, timeUs, publisher: "p", form: "v5", qos: 1, retain: true, expiryUs: 0 },
    expiryOffset: frame.expiryOffset,
    frame: frame.bytes,
  };
}

/** A node that keeps what was asked of it. */
export function paperNode() {
  const calls: Array<{ readonly name: string; readonly args: readonly unknown[] }> = [];
  const note =
    <T>(name: string, answer: (...args: never[]) => T) =>
    (...args: never[]): T => {
      calls.push({ name, args });
      return answer(...args);
    };
  const state: { node: NodeState; failing: Error | undefined; published: OutgoingMessage[] } = {
    node: "ready",
    failing: undefined,
    published: [],
  };
  const session = (clientId: string, backlog: boolean): SessionSummary => ({
    ...{ clientId, user: undefined, state: "offline", createdUs: 5, closedUs: 6, expiryS: 60 },
    ...{ subscriptions: 2, inFlight: 0, backlog, lagMs: backlog ? 7 : undefined, dropped: 0 },
  });
  const all = [session("a", false), session("b", true), session("c", false)];
  const subscription = (filter: string) => ({
    ...{ filter, qos: 1 as const, noLocal: false, retainAsPublished: false },
    ...{ retainHandling: 0 as const, identifier: 0 },
  });
  const detail = (clientId: string) => ({
    ...(all.find((each) => each.clientId === clientId) as SessionSummary),
    ...{ protocol: 5, will: undefined },
    filters: [subscription("x/+"), subscription(`own/${clientId}`)],
  });
  const has = (clientId: string): boolean => all.some((each) => each.clientId === clientId);
  const sessions: SessionInspector = {
    list: note(
      "sessions.list",
      async (query: never, page: { after?: string; countMax: number }) => {
        const { backlog } = query as { backlog?: boolean };
        const found = all.filter((each) => backlog === undefined || each.backlog === backlog);
        const rest = found.filter((each) => page.after === undefined || each.clientId > page.after);
        const shown = rest.slice(0, page.countMax);
        const next = rest.length > shown.length ? shown.at(-1)?.clientId : undefined;
        return { sessions: shown, next, total: found.length };
      },
    ),
    mayHave: () => true,
    behind: note("sessions.behind", async () => ({ count: 0, clientIds: [] })),
    get: note("sessions.get", async (clientId: string) =>
      has(clientId) ? detail(clientId) : undefined,
    ),
    clientIds: ({ prefix, after, countMax }) => {
      const ids = all.map(({ clientId }) => clientId).filter((id) => id.startsWith(prefix));
      const rest = ids.filter((id) => id > after);
      return { clientIds: rest.slice(0, countMax), hasMore: rest.length > countMax };
    },
    subscriptionsOf: async (clientId) => (has(clientId) ? detail(clientId).filters : []),
    subscriptionCount: async () => 2 * all.length,
    peek: note("sessions.peek", async (clientId: string) => {
      if (!has(clientId)) return undefined;
      const messages = [{ message: paperTtv("x/1", "secret"), qos: 1 as const, inFlight: true }];
      return { messages, next: undefined };
    }),
    purge: note("sessions.purge", async () => ({ clientIds: ["b"], next: undefined })),
    end: note("sessions.end", async () => ({ clientIds: ["b"], next: undefined })),
    removeSubscription: note(
      "sessions.removeSubscription",
      async (clientId: string, filter: string) => (has(clientId) ? filter === "x/+" : undefined),
    ),
  };
  const shards: ShardInfo[] = [1, 2, 3].map((number) => ({
    ...{ number, database: "messages", group: "default", epoch: 1, appliedIndex: 9, appliedUs: 9 },
    ...{ checkpointIndex: 8, checkpointUs: 8, logBytes: 1, generations: 1, ttvs: 4 },
    ...{ logicalBytes: 5, physicalBytes: 6, consumedUs: undefined, missing: 0, failure: undefined },
  }));
  const alarms: Alarm[] = [];
  const database = (name: string): DatabaseInfo => ({
    ...{ name, layout: "log", shards: [1, 2, 3], replicationFactor: 1, group: "default" },
    ...{ retention: { ageMs: 604_800_000, bytes: 0 }, layoutOptions: {}, topics: ["#"] },
    ...{ isBuiltIn: true, ttvs: 4, logicalBytes: 5, physicalBytes: 6 },
  });
  const hold = (name: string): HoldInfo => ({
    ...{ name, database: "messages", afterUs: new Map([[1, 5]]), lostTtvs: 0 },
  });
  const stream = { shard: 1, generation: 1, stream: 1, structure: "a/+", ttvs: 4, logicalBytes: 5 };
  const operator: StoreOperator = {
    alarms: () => alarms,
    shards: () => shards,
    databases: () => [database("messages")],
    createDatabase: note("store.createDatabase", async (spec: never) =>
      database((spec as { name: string }).name),
    ),
    alterDatabase: note("store.alterDatabase", async (name: string) => database(name)),
    dropDatabase: note("store.dropDatabase", async () => undefined),
    mapShard: () => ({}) as never,
    groups: () => [
      {
        fsync: "always",
        ...{ name: "default", databases: ["messages"], quotaBytes: Number.POSITIVE_INFINITY },
        ...{ onFull: "refuse", state: "open", physicalBytes: 1, logicalBytes: 1, logBytes: 1 },
        ...{ writeBufferBytes: 1, writeBufferBytesMax: 2, workSlots: 2, workSlotsUsed: 0 },
        counters: { refused: 0 },
      },
    ],
    generations: note("store.generations", (shard: number) => {
      if (state.failing !== undefined) throw state.failing;
      return [
        {
          ...{ shard, number: 1, layout: "log-1", state: "current", fromUs: 0, toUs: undefined },
          ...{ ttvs: 4, logicalBytes: 5, physicalBytes: 6, streams: 1, folder: "x", isOpen: true },
          heldBy: [],
        },
      ];
    }),
    streams: note("store.streams", async () => [stream]),
    explain: note("store.explain", async (filter: string) => ({
      ...{ filter, databases: ["messages"], streamsTotal: 1, blocks: 9, blocksToRead: 2 },
      streams: [{ ...stream, residual: "all", blocks: 9, blocksToRead: 2 }],
      ...{ isComplete: true, advice: ["it is cheap"] },
    })),
    rotate: note("store.rotate", async () => undefined),
    dropUntil: note("store.dropUntil", async () => 2),
    holds: () => [hold("audit")],
    hold: note("store.hold", async (name: string) => hold(name)),
    releaseHold: note("store.releaseHold", async () => undefined),
    verify: async () => ({ slabs: 1, blocks: 2, ttvs: 3, findings: [] }),
    repack: async () => ({
      ...{ slabs: 1, packed: 1, withoutRoom: 0, blocksBefore: 9, blocksAfter: 2 },
      ...{ bytesBefore: 2, bytesAfter: 1, ttvsExpired: 3 },
    }),
    compact: async () => ({
      ...{ slabs: 1, shards: 2, bytesBefore: 2, bytesAfter: 1, logBytesFreed: 0 },
    }),
    logicalHash: async () => "0",
  };
  const tap = new Tap();
  const users = new Map([["alice", "scrypt"]]);
  const access: AccessControl = {
    users: () => [...users].map(([name, form]) => ({ name, form, sinceUs: 5 })),
    putUser: note("access.putUser", async (name: string, _password: never, isScram: never) => {
      users.set(name, isScram ? "scram-sha-256" : "scrypt");
    }),
    removeUser: note("access.removeUser", async (name: string) => users.delete(name)),
    rules: () => "allow all\n",
    replaceRules: note("access.replaceRules", async () => undefined),
    checkRules: note("access.checkRules", () => undefined),
  };
  const sharedGroups: GroupInspector = {
    list: note("sharedGroups.list", () => {
      const members = { durable: true, connectedMembers: 1, durableMembers: 2 };
      const group = { group: "$share/g/x", ...members, inFlight: 3, returned: 0 };
      return { groups: [{ ...group, backlog: true, dropped: 0 }], next: undefined, total: 1 };
    }),
  };
  const parts: RunningParts = {
    clients: {
      list: async () => ({ clients: [], next: undefined, total: 0 }),
      live: async ({ after }) => ({
        clients:
          "aa" > after ? [{ clientId: "aa", subscriptions: () => [subscription("x/+")] }] : [],
        ...{ hasMore: false, subscriptionCount: 1 },
      }),
      get: () => undefined,
      kick: note("clients.kick", (clientId: string) => clientId === "a"),
    },
    sessions,
    sharedGroups,
    retained: {
      get: async (topic) => (topic === "x/1" ? paperTtv("x/1", "secret") : undefined),
      page: async () => ({ messages: [paperTtv("x/1", "secret")], next: undefined }),
      put: note("retained.put", (_message: never, _isEmpty: never, done: (e: undefined) => void) =>
        done(undefined),
      ) as never,
    },
    store: { logShards: [], tail: () => new Map(), subscribe: () => ({}) as never },
    operator,
    tap,
    access,
    cluster: paperCluster(note),
    publish: async (message) => {
      if (state.failing !== undefined) throw state.failing;
      state.published.push(message);
    },
  };
  const counters = createCounters({
    publishesQos0: "at 0",
    publishesQos1: "at 1",
    odd: "odd ones",
  });
  const host: AdminHost = {
    state: () => state.node,
    running: () => (state.node === "ready" ? parts : undefined),
    facts: async () => ({
      ...{ version: "1.2.3", state: state.node, pid: 1, startedUs: 0, listeners: [] },
      ...{ dataDir: "data", freeBytes: 1, totalBytes: 2, clients: 0, sessions: 3, memoryBytes: 1 },
      ...{ received: 0, delivered: 0, logBytes: 0, durability: "acked means synced" },
    }),
    checks: async () => [{ name: "log", state: "ok", message: "fine" }],
    doctor: async () => ({ version: "1.2.3", checks: [], facts: {} }),
    alarms: () => alarms,
    metrics: () => [{ kind: "counters", room: "broker", counters }],
    configuration: () => [],
    reload: note("reload", () => []) as unknown as AdminHost["reload"],
    progress: () => "replaying the log",
  };
  return { host, parts, calls, state, alarms, counters, tap };
}
