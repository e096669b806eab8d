// What the HTTP API answers, schema by schema. Units stand last in names.

import * as v from "valibot";
import { roles } from "../operations.ts";
import { amount, qos, timeUs, whole } from "./values.ts";

const text = v.string();
const flag = v.boolean();
const counts = v.record(v.string(), v.number());

// ---------------------------------------------------------------- node

export const nodeStates = ["starting", "ready", "draining", "failed"] as const;

export const listener = v.object({ name: text, host: text, port: whole });

export const status = v.object({
  version: text,
  state: v.picklist(nodeStates),
  siteId: v.optional(text),
  pid: whole,
  startedUs: timeUs,
  uptimeMs: whole,
  readyMs: v.optional(amount),
  listeners: v.array(listener),
  dataDir: text,
  fileSystem: v.optional(text),
  freeBytes: whole,
  totalBytes: whole,
  clients: whole,
  sessions: whole,
  memoryBytes: whole,
  received: v.pipe(whole, v.description("PUBLISHes since the start")),
  delivered: v.pipe(whole, v.description("messages sent since the start")),
  receivedPerS: amount,
  deliveredPerS: amount,
  logBytes: whole,
  alarms: whole,
  tasks: v.pipe(whole, v.description("running or waiting")),
  /** What acked messages survive. */
  durability: text,
});

export const check = v.object({
  name: text,
  state: v.picklist(["ok", "warning", "failed"]),
  message: text,
});

export const health = v.object({ state: v.picklist(nodeStates), checks: v.array(check) });

export const advice = v.object({
  name: text,
  state: v.picklist(["ok", "warning", "failed"]),
  message: text,
  help: v.optional(text),
});

export const doctor = v.object({
  version: text,
  checks: v.array(advice),
  /** Facts for a report: no client ids, topics, addresses or secrets. */
  facts: v.record(v.string(), v.union([v.string(), v.number(), v.boolean()])),
});

export const alarm = v.object({
  name: text,
  subject: text,
  severity: v.picklist(["warning", "critical"]),
  sinceMs: whole,
  message: text,
  help: text,
});

// ---------------------------------------------------------------- clients and sessions

export const client = v.object({
  clientId: text,
  user: v.optional(text),
  remote: text,
  protocol: v.pipe(text, v.description("3.1, 3.1.1 or 5")),
  connectedMs: v.pipe(whole, v.description("since it connected")),
  keepAliveS: whole,
  isDurable: flag,
  isPaused: v.pipe(flag, v.description("the broker does not read it at the moment")),
});

export const subscription = v.object({
  filter: text,
  qos,
  noLocal: flag,
  retainAsPublished: flag,
  retainHandling: v.picklist([0, 1, 2]),
  identifier: whole,
});

const sessionEntries = {
  clientId: text,
  user: v.optional(text),
  state: v.picklist(["connected", "offline"]),
  node: v.optional(
    v.pipe(whole, v.description("in a cluster: the node of its connection, if it is another one")),
  ),
  createdUs: timeUs,
  closedUs: v.optional(timeUs),
  expiryS: v.pipe(whole, v.description("4294967295: never")),
  subscriptions: whole,
  inFlight: whole,
  backlog: v.pipe(flag, v.description("messages wait for it")),
  lagMs: v.optional(
    v.pipe(whole, v.description("age of the position it has to read on from; none: nothing waits")),
  ),
  dropped: v.pipe(whole, v.description("lost to limits, retention or damage")),
};

export const session = v.object(sessionEntries);

export const sessionDetail = v.object({
  ...sessionEntries,
  protocol: whole,
  will: v.optional(v.object({ topic: text, qos, retain: flag, delayS: whole })),
  filters: v.array(subscription),
});

export const sessionsChanged = v.object({
  clientIds: v.array(text),
  next: v.optional(text),
  dryRun: flag,
});

export const clientSubscription = v.object({
  clientId: text,
  isDurable: v.pipe(flag, v.description("kept while its client is away")),
  ...subscription.entries,
});

export const sharedGroup = v.object({
  group: v.pipe(text, v.description("the shared filter, whole")),
  durable: v.pipe(flag, v.description("it has a cursor: messages wait for its members")),
  connectedMembers: v.pipe(whole, v.description("those that messages are dealt to")),
  durableMembers: v.pipe(whole, v.description("durable sessions, connected or not")),
  inFlight: v.pipe(whole, v.description("dealt and not finished")),
  returned: v.pipe(whole, v.description("to be dealt again")),
  backlog: v.pipe(flag, v.description("messages wait for a member")),
  dropped: v.pipe(whole, v.description("lost to retention or damage")),
});

// ---------------------------------------------------------------- messages

/** A payload is there when it was asked for; as base64 where it is not UTF-8. */
export const message = v.object({
  topic: text,
  timeUs,
  publisher: text,
  qos,
  retain: flag,
  expiryUs: v.optional(timeUs),
  payloadBytes: whole,
  payload: v.optional(text),
  payloadBase64: v.optional(text),
  isCut: v.optional(v.pipe(flag, v.description("the payload is longer than what is answered"))),
});

export const backlogMessage = v.object({ ...message.entries, inFlight: flag });

export const topicsChanged = v.object({
  topics: v.array(text),
  next: v.optional(text),
  dryRun: flag,
});

// ---------------------------------------------------------------- storage

/** By level, as many as the configuration takes. */
const thresholds = v.pipe(v.array(whole), v.maxLength(16));
/** One level of a topic, as the configuration takes it. */
const firstLevel = v.pipe(v.string(), v.regex(/^[^/+#]{1,256}$/));

export const layoutOptions = v.object({
  thresholds: v.optional(thresholds),
  rootThresholds: v.optional(v.pipe(v.record(firstLevel, thresholds), v.maxEntries(1000))),
  patterns: v.optional(v.pipe(v.array(text), v.maxLength(1000))),
  streamsMax: v.optional(whole),
  trieBytesMax: v.optional(whole),
});

export const database = v.object({
  name: text,
  layout: v.picklist(["log", "map"]),
  shards: v.array(whole),
  replicationFactor: whole,
  retention: v.object({ ageMs: whole, bytes: whole }),
  layoutOptions,
  topics: v.array(text),
  group: text,
  isBuiltIn: flag,
  ttvs: whole,
  logicalBytes: whole,
  physicalBytes: whole,
});

export const group = v.object({
  name: text,
  databases: v.array(text),
  quotaBytes: whole,
  onFull: v.picklist(["refuse", "drop_oldest"]),
  fsync: v.picklist(["always", "interval"]),
  state: v.picklist(["open", "near", "full"]),
  physicalBytes: whole,
  logicalBytes: whole,
  logBytes: whole,
  writeBufferBytes: whole,
  writeBufferBytesMax: whole,
  workSlots: whole,
  workSlotsUsed: whole,
  counters: counts,
});

export const shard = v.object({
  number: whole,
  database: text,
  group: text,
  epoch: whole,
  appliedIndex: whole,
  appliedUs: timeUs,
  checkpointIndex: whole,
  checkpointUs: timeUs,
  logBytes: whole,
  generations: whole,
  ttvs: whole,
  logicalBytes: whole,
  physicalBytes: whole,
  consumedUs: v.optional(timeUs),
  missing: whole,
  failure: v.optional(text),
});

export const generation = v.object({
  shard: whole,
  number: whole,
  layout: text,
  state: v.picklist(["current", "sealing", "sealed", "dropping"]),
  fromUs: timeUs,
  toUs: v.optional(timeUs),
  ttvs: whole,
  logicalBytes: whole,
  physicalBytes: whole,
  streams: whole,
  folder: text,
  isOpen: flag,
  heldBy: v.array(text),
});

const streamEntries = {
  shard: whole,
  generation: whole,
  stream: whole,
  structure: text,
  ttvs: whole,
  logicalBytes: whole,
};

export const stream = v.object(streamEntries);

export const explanation = v.object({
  filter: text,
  databases: v.array(text),
  streams: v.array(
    v.object({ ...streamEntries, residual: text, blocks: whole, blocksToRead: whole }),
  ),
  streamsTotal: whole,
  blocks: whole,
  blocksToRead: whole,
  isComplete: flag,
  advice: v.array(text),
});

export const hold = v.object({
  name: text,
  database: text,
  afterUs: v.array(v.object({ shard: whole, timeUs })),
  lostTtvs: whole,
});

// ---------------------------------------------------------------- tasks

export const taskKinds = ["verify", "compact", "repack", "drop", "export"] as const;
export const taskStates = ["running", "paused", "done", "failed", "cancelled"] as const;

export const task = v.object({
  id: text,
  kind: v.picklist(taskKinds),
  state: v.picklist(taskStates),
  phase: text,
  done: whole,
  total: whole,
  unit: text,
  ratePerS: amount,
  etaMs: v.optional(whole),
  startedMs: whole,
  endedMs: v.optional(whole),
  options: v.record(v.string(), v.union([v.string(), v.number(), v.boolean()])),
  /** What it found or did, when it has ended. */
  report: v.optional(v.record(v.string(), v.unknown())),
  error: v.optional(text),
});

// ---------------------------------------------------------------- traces

export const trace = v.object({
  id: text,
  clientId: v.optional(text),
  filter: v.optional(text),
  state: v.picklist(["running", "ended"]),
  startedMs: whole,
  endsMs: whole,
  lines: v.pipe(whole, v.description("since it began")),
  linesGone: v.pipe(whole, v.description("older than those that are kept")),
  unlogged: v.pipe(whole, v.description("kept, but too many a second for the log")),
});

export const traceLine = v.object({
  number: v.pipe(whole, v.description("counts from 1; as `after`: what is behind it")),
  timeUs,
  event: text,
  clientId: text,
  topic: v.optional(text),
  facts: v.record(v.string(), v.union([v.string(), v.number(), v.boolean(), v.array(v.string())])),
});

// ---------------------------------------------------------------- configuration and access

export const configValue = v.object({
  path: text,
  value: text,
  origin: text,
  reload: v.picklist(["hot", "restart"]),
});

export const configChange = v.object({
  path: text,
  from: v.optional(text),
  to: v.optional(text),
  reload: v.picklist(["hot", "restart"]),
});

export const reloaded = v.object({ dryRun: flag, changes: v.array(configChange) });

export const apiKey = v.object({
  id: text,
  name: text,
  role: v.picklist(roles),
  createdMs: whole,
});

export const newApiKey = v.object({
  ...apiKey.entries,
  secret: v.pipe(text, v.description("shown this once; send it as `Authorization: Bearer ...`")),
});

export const user = v.object({
  name: text,
  form: v.pipe(text, v.description("how the password is hashed: scrypt, scram-sha-256, 7, 6")),
  sinceUs: v.pipe(timeUs, v.description("of the last change")),
});

export const rules = v.object({ text: v.pipe(text, v.description("as a rule file has them")) });

export const auditEntry = v.object({
  timeMs: whole,
  key: text,
  role: v.picklist(roles),
  remote: text,
  operation: text,
  target: text,
  status: whole,
  code: v.optional(text),
});

export const done = v.object({ done: v.literal(true) });

// ---------------------------------------------------------------- cluster

const site = v.object({
  node: whole,
  name: text,
  address: text,
  zone: text,
  state: v.picklist(["joining", "active", "evacuating", "left"]),
  answers: v.pipe(flag, v.description("it answered within a second; this node does")),
  aheadMs: v.optional(v.pipe(v.number(), v.description("its clock, against this node's"))),
  leads: v.pipe(whole, v.description("groups it leads, as far as this node knows")),
});

const raftGroup = v.object({
  group: v.pipe(whole, v.description("0: the roster; else the number of a shard")),
  database: v.optional(text),
  leader: v.pipe(whole, v.description("0: none known, so nothing of it is acked")),
  state: v.pipe(v.picklist(["up", "repairing", "removed", "failed"]), v.description("here")),
  applied: v.pipe(whole, v.description("here")),
  commit: v.pipe(whole, v.description("as known here")),
  voters: v.array(whole),
  learners: v.array(whole),
});

export const cluster = v.object({
  name: text,
  clusterId: text,
  node: v.pipe(whole, v.description("the one that answers")),
  replicas: v.pipe(whole, v.description("that shards need")),
  hasMajority: v.pipe(flag, v.description("every group here has a leader")),
  sites: v.array(site),
  groups: v.array(raftGroup),
});

export const joinedCluster = v.object({
  node: v.pipe(whole, v.description("number of the new site, for ever")),
  members: v.array(
    v.object({
      node: whole,
      siteId: text,
      diskId: text,
      name: text,
      address: text,
      removed: flag,
    }),
  ),
});
