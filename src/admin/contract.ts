// The contract of the HTTP API: for every operation its parameters, query, body and answer. The one
// file of this room that browser code may import; it uses nothing of Node.
//
// What comes in is checked strictly: an unknown key is a fault. Answers are open: a later version may
// add keys, a reader ignores those it does not know.

import * as v from "valibot";
import * as answers from "./contract/answers.ts";
import {
  clientId,
  filter,
  flagText,
  listOf,
  name,
  pageBody,
  pageOf,
  pageQuery,
  qos,
  timeUs,
  topic,
  whole,
  wholeText,
} from "./contract/values.ts";
import { type OperationName, roles } from "./operations.ts";

export * from "./operations.ts";

type Shape = {
  readonly params?: v.GenericSchema;
  readonly query?: v.GenericSchema;
  readonly body?: v.GenericSchema;
  readonly answer: v.GenericSchema;
};

const shardMax = 2 ** 32 - 1;
const sessionQuery = {
  clientIdPrefix: v.optional(v.pipe(v.string(), v.maxLength(65_535))),
  state: v.optional(v.picklist(["connected", "offline"])),
};
const withPayload = flagText("answer payloads as well (role operator); in lists, 64 KiB of each");
const databaseName = v.strictObject({ database: name });
const oneClient = v.strictObject({ clientId });
const oneHold = v.strictObject({ hold: name });
const oneShard = wholeText(0, shardMax, "number of a shard");
const taskId = v.pipe(v.string(), v.regex(/^[a-z0-9-]{1,64}$/));
const userName = v.pipe(v.string(), v.minLength(1), v.maxLength(1024));
const oneUser = v.strictObject({ user: userName });
/** Of UTF-16 units; the store takes 1 MiB. */
const rulesLengthMax = 1024 * 1024;
const oneTrace = v.strictObject({ trace: v.pipe(v.string(), v.regex(/^[0-9a-f]{8}$/)) });
const uuid = v.pipe(v.string(), v.regex(/^[0-9a-f]{32}$/));
const siteName = v.pipe(v.string(), v.regex(/^[a-z0-9][a-z0-9.-]{0,63}$/));
const hostPort = v.pipe(v.string(), v.regex(/^\S{1,255}:\d{1,5}$/));
const zone = v.pipe(v.string(), v.maxLength(64));
const oneNode = wholeText(1, 2 ** 32 - 1, "number of a node");
const dryRun = v.optional(v.boolean(), false);

/** Exactly these sessions: at least one filter, so that nobody purges all by leaving a body empty. */
const sessionsBody = v.pipe(
  v.strictObject({
    ...sessionQuery,
    clientId: v.optional(clientId),
    backlog: v.optional(v.boolean()),
    dropped: v.optional(v.boolean()),
    all: v.optional(v.literal(true)),
    dryRun,
    ...pageBody,
  }),
  v.check(
    ({ clientIdPrefix, clientId: one, state, backlog, dropped, all }) =>
      [clientIdPrefix, one, state, backlog, dropped, all].some((each) => each !== undefined),
    "say which sessions: clientId, clientIdPrefix, state, backlog, dropped, or all: true",
  ),
);

/** Which options each kind of task takes; those with a "!" it needs. */
const taskOptions: Readonly<Record<string, readonly string[]>> = {
  verify: ["database", "shard"],
  compact: ["database", "shard"],
  repack: ["database", "shard"],
  drop: ["database", "untilUs!", "force"],
  export: ["database", "filter!", "fromUs", "toUs"],
};
const taskBody = v.pipe(
  v.strictObject({
    kind: v.picklist(answers.taskKinds),
    database: v.optional(name),
    shard: v.optional(v.pipe(whole, v.maxValue(shardMax))),
    untilUs: v.optional(timeUs),
    force: v.optional(v.boolean()),
    filter: v.optional(filter),
    fromUs: v.optional(timeUs),
    toUs: v.optional(timeUs),
  }),
  v.check(({ kind, ...options }) => {
    const known = taskOptions[kind] ?? [];
    const given = Object.entries(options).filter(([, value]) => value !== undefined);
    const keys = given.map(([key]) => key);
    const needed = known.filter((key) => key.endsWith("!")).map((key) => key.slice(0, -1));
    const isKnown = (key: string): boolean => known.includes(key) || known.includes(`${key}!`);
    return keys.every(isKnown) && needed.every((key) => keys.includes(key));
  }, "verify, compact and repack take database and shard; drop untilUs (needed), database and force; export filter (needed), database, fromUs and toUs"),
);

const retentionChange = v.strictObject({
  ageMs: v.optional(whole),
  bytes: v.optional(whole),
});
const databaseChange = {
  retention: v.optional(retentionChange),
  layoutOptions: v.optional(v.strictObject(answers.layoutOptions.entries)),
  topics: v.optional(v.pipe(v.array(filter), v.maxLength(1000))),
};

export const contract = {
  getStatus: { answer: answers.status },
  getHealth: { answer: answers.health },
  listAlarms: { answer: listOf(answers.alarm) },
  runDoctor: { answer: answers.doctor },
  listClients: {
    query: v.strictObject({ clientIdPrefix: sessionQuery.clientIdPrefix, ...pageQuery }),
    answer: pageOf(answers.client),
  },
  getClient: { params: oneClient, answer: answers.client },
  kickClient: { params: oneClient, answer: answers.done },
  listSessions: {
    query: v.strictObject({
      ...sessionQuery,
      backlog: v.optional(flagText("only those with (or without) waiting messages")),
      dropped: v.optional(flagText("only those that have (or have not) lost messages")),
      ...pageQuery,
    }),
    answer: pageOf(answers.session),
  },
  getSession: { params: oneClient, answer: answers.sessionDetail },
  peekBacklog: {
    params: oneClient,
    query: v.strictObject({ payload: v.optional(withPayload), ...pageQuery }),
    answer: pageOf(answers.backlogMessage),
  },
  purgeSessions: { body: sessionsBody, answer: answers.sessionsChanged },
  endSessions: { body: sessionsBody, answer: answers.sessionsChanged },
  removeSubscription: {
    params: oneClient,
    query: v.strictObject({ filter }),
    answer: answers.done,
  },
  listSubscriptions: {
    query: v.strictObject({
      clientIdPrefix: sessionQuery.clientIdPrefix,
      filter: v.optional(filter),
      topic: v.optional(topic),
      ...pageQuery,
    }),
    answer: pageOf(answers.clientSubscription),
  },
  listSharedGroups: {
    query: v.strictObject({
      prefix: sessionQuery.clientIdPrefix,
      backlog: v.optional(flagText("only those with (or without) waiting messages")),
      ...pageQuery,
    }),
    answer: pageOf(answers.sharedGroup),
  },
  listRetained: {
    query: v.strictObject({
      filter: v.optional(filter),
      payload: v.optional(withPayload),
      ...pageQuery,
    }),
    answer: pageOf(answers.message),
  },
  getRetained: {
    query: v.strictObject({ topic, payload: v.optional(withPayload) }),
    answer: answers.message,
  },
  deleteRetained: {
    body: v.strictObject({ filter, dryRun, ...pageBody }),
    answer: answers.topicsChanged,
  },
  publish: {
    body: v.pipe(
      v.strictObject({
        topic,
        payload: v.optional(v.string()),
        payloadBase64: v.optional(v.pipe(v.string(), v.base64())),
        qos: v.optional(qos, 1),
        retain: v.optional(v.boolean(), false),
        messageExpiryS: v.optional(v.pipe(whole, v.maxValue(2 ** 32 - 1))),
        contentType: v.optional(v.pipe(v.string(), v.maxLength(1000))),
        responseTopic: v.optional(topic),
        userProperties: v.optional(
          v.pipe(
            v.array(
              v.strictTuple([
                v.pipe(v.string(), v.maxLength(65_535)),
                v.pipe(v.string(), v.maxLength(65_535)),
              ]),
            ),
            v.maxLength(64),
          ),
        ),
      }),
      v.check(
        ({ payload, payloadBase64 }) => payload === undefined || payloadBase64 === undefined,
        "give payload or payloadBase64, not both",
      ),
    ),
    answer: answers.done,
  },
  queryHistory: {
    query: v.strictObject({
      filter,
      fromUs: v.optional(wholeText(0, Number.MAX_SAFE_INTEGER, "first time, inclusive")),
      toUs: v.optional(wholeText(0, Number.MAX_SAFE_INTEGER, "last time, inclusive")),
      payload: v.optional(withPayload),
      whole: v.optional(flagText("with payload: all of each; pages may be shorter")),
      ...pageQuery,
    }),
    answer: pageOf(answers.message),
  },
  listDatabases: { answer: listOf(answers.database) },
  createDatabase: {
    body: v.strictObject({
      name,
      layout: v.optional(v.picklist(["log", "map"])),
      shards: v.optional(v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(256))),
      ...databaseChange,
    }),
    answer: answers.database,
  },
  alterDatabase: {
    params: databaseName,
    body: v.strictObject(databaseChange),
    answer: answers.database,
  },
  dropDatabase: { params: databaseName, answer: answers.done },
  rotateDatabase: { params: databaseName, answer: answers.done },
  dropGenerations: {
    params: databaseName,
    body: v.strictObject({ untilUs: timeUs, force: v.optional(v.boolean(), false) }),
    answer: v.object({ generations: whole }),
  },
  listGroups: { answer: listOf(answers.group) },
  listShards: {
    query: v.strictObject({ database: v.optional(name) }),
    answer: listOf(answers.shard),
  },
  listGenerations: {
    params: v.strictObject({ shard: oneShard }),
    answer: listOf(answers.generation),
  },
  listStreams: {
    params: v.strictObject({
      shard: oneShard,
      generation: wholeText(0, shardMax, "number of a generation"),
    }),
    answer: listOf(answers.stream),
  },
  explainFilter: {
    query: v.strictObject({
      filter,
      database: v.optional(name),
      sinceUs: v.optional(wholeText(0, Number.MAX_SAFE_INTEGER, "only what is later")),
    }),
    answer: answers.explanation,
  },
  listHolds: { answer: listOf(answers.hold) },
  putHold: {
    params: oneHold,
    body: v.strictObject({ database: v.optional(name), afterUs: v.optional(timeUs) }),
    answer: answers.hold,
  },
  releaseHold: {
    params: oneHold,
    query: v.strictObject({ database: v.optional(name) }),
    answer: answers.done,
  },
  listTasks: { answer: listOf(answers.task) },
  getTask: { params: v.strictObject({ task: taskId }), answer: answers.task },
  startTask: { body: taskBody, answer: answers.task },
  removeTask: { params: v.strictObject({ task: taskId }), answer: answers.done },
  steerTask: {
    params: v.strictObject({ task: taskId, verb: v.picklist(["pause", "resume", "cancel"]) }),
    answer: answers.task,
  },
  listTraces: { answer: listOf(answers.trace) },
  startTrace: {
    body: v.pipe(
      v.strictObject({
        clientId: v.optional(clientId),
        filter: v.optional(filter),
        minutes: v.optional(v.pipe(whole, v.minValue(1), v.maxValue(1440)), 10),
      }),
      v.check(
        ({ clientId: one, filter: topics }) => (one === undefined) !== (topics === undefined),
        "say what to watch: clientId or filter",
      ),
    ),
    answer: answers.trace,
  },
  readTrace: {
    params: oneTrace,
    query: v.strictObject({
      after: v.optional(wholeText(0, Number.MAX_SAFE_INTEGER, "number of the last line known")),
      limit: pageQuery.limit,
    }),
    answer: pageOf(answers.traceLine),
  },
  stopTrace: { params: oneTrace, answer: answers.trace },
  getConfig: { answer: listOf(answers.configValue) },
  reloadConfig: { body: v.strictObject({ dryRun }), answer: answers.reloaded },
  listKeys: { answer: listOf(answers.apiKey) },
  createKey: {
    body: v.strictObject({ name, role: v.picklist(roles) }),
    answer: answers.newApiKey,
  },
  deleteKey: {
    params: v.strictObject({ key: v.pipe(v.string(), v.regex(/^[a-z0-9]{1,32}$/)) }),
    answer: answers.done,
  },
  listUsers: {
    query: v.strictObject({ ...pageQuery, after: v.optional(userName) }),
    answer: pageOf(answers.user),
  },
  putUser: {
    params: oneUser,
    body: v.strictObject({
      password: v.pipe(v.string(), v.minLength(1), v.maxLength(1024)),
      scram: v.optional(v.boolean(), false),
      expect: v.optional(v.picklist(["new", "known"])),
    }),
    answer: answers.done,
  },
  deleteUser: { params: oneUser, answer: answers.done },
  getRules: { answer: answers.rules },
  putRules: {
    body: v.strictObject({ text: v.pipe(v.string(), v.maxLength(rulesLengthMax)), dryRun }),
    answer: v.object({ dryRun: v.boolean() }),
  },
  getCluster: { answer: answers.cluster },
  joinCluster: {
    body: v.strictObject({
      siteId: uuid,
      diskId: uuid,
      name: siteName,
      address: hostPort,
      zone: v.optional(zone, ""),
    }),
    answer: answers.joinedCluster,
  },
  steerSite: {
    params: v.strictObject({ node: oneNode, verb: v.picklist(["evacuate", "stay", "forget"]) }),
    answer: answers.done,
  },
  moveSite: {
    params: v.strictObject({ node: oneNode }),
    body: v.strictObject({ address: hostPort, zone: v.optional(zone) }),
    answer: answers.done,
  },
  setReplicas: {
    body: v.strictObject({ count: v.pipe(whole, v.minValue(1), v.maxValue(7)) }),
    answer: answers.done,
  },
  listAudit: { query: v.strictObject(pageQuery), answer: pageOf(answers.auditEntry) },
} as const satisfies { readonly [K in OperationName]: Shape };

type Contract = typeof contract;
type OutputOf<
  K extends OperationName,
  Part extends "params" | "query" | "body",
> = Contract[K] extends { readonly [P in Part]: infer S extends v.GenericSchema }
  ? v.InferOutput<S>
  : undefined;

/** What a handler gets: checked, defaults filled in. */
export type InputOf<K extends OperationName> = {
  readonly params: OutputOf<K, "params">;
  readonly query: OutputOf<K, "query">;
  readonly body: OutputOf<K, "body">;
};

export type AnswerOf<K extends OperationName> = v.InferOutput<Contract[K]["answer"]>;

type BodyInputOf<K extends OperationName> = Contract[K] extends {
  readonly body: infer S extends v.GenericSchema;
}
  ? v.InferInput<S>
  : undefined;

type Given<Part extends string, T> = [T] extends [undefined]
  ? object
  : object extends T
    ? { readonly [P in Part]?: T }
    : { readonly [P in Part]: T };

/** What a caller gives: parameters and query as values, defaults left out. */
export type CallOf<K extends OperationName> = Given<"params", OutputOf<K, "params">> &
  Given<"query", OutputOf<K, "query">> &
  Given<"body", BodyInputOf<K>>;

export type Message = v.InferOutput<typeof answers.message>;
export type Task = v.InferOutput<typeof answers.task>;
export type Trace = v.InferOutput<typeof answers.trace>;
export type TraceLine = v.InferOutput<typeof answers.traceLine>;
export type Health = v.InferOutput<typeof answers.health>;
export type Check = v.InferOutput<typeof answers.check>;
export type Status = v.InferOutput<typeof answers.status>;
export type Doctor = v.InferOutput<typeof answers.doctor>;
export type ClientInfo = v.InferOutput<typeof answers.client>;
export type AuditEntry = v.InferOutput<typeof answers.auditEntry>;
export type ApiKey = v.InferOutput<typeof answers.apiKey>;
export type ConfigValue = v.InferOutput<typeof answers.configValue>;
export type ConfigChangeInfo = v.InferOutput<typeof answers.configChange>;
