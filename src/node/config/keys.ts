// The key table: every configuration key with its default, range, meaning of 0, reload mark and
// reason. Spelling of keys is part of the public contract; so is the one meaning of 0: where a limit
// can be lifted 0 lifts it, where it cannot 0 is refused, and where 0 is an amount like any other
// (a wait, an announcement) its row says what it does.

import {
  choice,
  count,
  duration,
  flag,
  group,
  list,
  named,
  port,
  type SettingsOf,
  size,
  text,
} from "./schema.ts";

const kib = 2 ** 10;
const mib = 2 ** 20;
const gib = 2 ** 30;
const second = 1000;
const minute = 60 * second;
const day = 86_400 * second;
const uint16Max = 65_535;

const data = group("Where everything durable lives.", {
  dir: text({
    doc: "Data directory; created with mode 0700. One node per directory, on a local volume.",
    reload: "restart",
    fallback: "./data",
  }),
});

const listeners = named(
  {
    doc: "Addresses on which MQTT clients are awaited. Naming one replaces the built-in `tcp`.",
    label: "listener",
    builtIn: { tcp: { port: "1883" } },
    builtInWhenNamed: "replaced",
  },
  {
    host: text({
      doc: "Address to bind. Loopback unless said otherwise: nobody is authenticated yet.",
      reload: "restart",
      fallback: "127.0.0.1",
      pattern: /^[A-Za-z0-9_.:%-]+$/,
      expected: "a host name or address such as 127.0.0.1, :: or broker.example.org",
    }),
    port: port({ doc: "TCP port to bind.", reload: "restart" }),
  },
);

const logger = group("What the node says about itself, on standard error.", {
  level: choice(["debug", "info", "warn", "error"], {
    doc: "Least severity that is written.",
    reload: "hot",
    fallback: "info",
  }),
  format: choice(["auto", "pretty", "json"], {
    doc: "`auto`: a short line on a terminal, one JSON object a line to a pipe.",
    reload: "restart",
    fallback: "auto",
  }),
});

const log = group("The write-ahead log that makes acked messages durable.", {
  segmentBytes: size({
    doc: "Size of a segment file, filled ahead and recycled. A larger record gets its own.",
    reload: "restart",
    fallback: "64MiB",
    min: 64 * kib,
    max: gib,
  }),
  flushBytesMax: size({
    doc: "Bytes of one flush. A larger record makes a flush of its own.",
    reload: "restart",
    fallback: "1MiB",
    min: 4096,
    max: 64 * mib,
  }),
  maxItems: count({
    doc: "Records of one flush.",
    reload: "restart",
    fallback: "4096",
    min: 1,
    max: 65_536,
  }),
  flushIntervalMs: duration({
    doc: "Delay before a flush while the log is busy. The sync under way is the natural timer.",
    reload: "restart",
    fallback: "0",
    min: 0,
    max: second,
    zero: "as_is",
    zeroDoc: "no delay",
  }),
  idleFlushIntervalMs: duration({
    doc: "Delay before the first flush after the log was idle.",
    reload: "restart",
    fallback: "0",
    min: 0,
    max: second,
    zero: "as_is",
    zeroDoc: "no delay",
  }),
  pendingBytesMax: size({
    doc: "Bytes queued and not yet synced at which publishes wait; progress of sessions goes on.",
    reload: "restart",
    fallback: "32MiB",
    min: mib,
    max: gib,
  }),
  onDamage: choice(["quarantine", "refuse"], {
    doc: "Damaged synced bytes at start: set them aside, record the gap and go on, or end with 4.",
    reload: "restart",
    fallback: "quarantine",
  }),
  spareSegmentsMax: count({
    doc: "Used segments kept for reuse.",
    reload: "restart",
    fallback: "4",
    min: 0,
    max: 1024,
    zero: "as_is",
    zeroDoc: "segments are removed",
  }),
});

const shards = count({
  doc: "Hash partitions; fixed when the data directory is made.",
  reload: "restart",
  fallback: "4",
  min: 1,
  max: 256,
});

const layoutOptions = group("How topics are learned.", {
  rootThreshold: count({
    doc: "Distinct first levels before the first level counts as varying.",
    reload: "restart",
    fallback: "100",
    min: 1,
    max: 100_000,
  }),
  threshold: count({
    doc: "Distinct children of a deeper level before that level counts as varying.",
    reload: "restart",
    fallback: "10",
    min: 1,
    max: 100_000,
  }),
  streamsMax: count({
    doc: "Streams of one slab; topics beyond it share one stream.",
    reload: "restart",
    fallback: "256",
    min: 3,
    max: 4096,
  }),
  trieBytesMax: size({
    doc: "Memory of the learned structure of one slab.",
    reload: "restart",
    fallback: "16MiB",
    min: 64 * kib,
    max: gib,
  }),
  patterns: list({
    doc: "Structures known ahead, as topic filters.",
    reload: "restart",
    fallback: [],
    itemsMax: 256,
    expected: "a list of topic filters such as [metrics/+/cpu/+]",
  }),
});

const databases = group("What is stored, by kind.", {
  messages: group("Messages that durable sessions want.", { shards, layoutOptions }),
  state: group("Sessions, subscriptions and retained messages.", { shards }),
});

const groups = group("Resources that databases share.", {
  default: group("The group of all databases.", {
    writeBuffer: size({
      doc: "Memory of messages not yet written to slabs. At the limit publishes wait, then fail.",
      reload: "restart",
      fallback: "256MiB",
      min: mib,
      max: 64 * gib,
    }),
  }),
});

const mqtt = group("The MQTT front end and its sessions.", {
  maxPacketSize: size({
    doc: "Largest packet taken and announced. Beyond: 0x95; MQTT 3.1.1: closed.",
    reload: "restart",
    fallback: "8MiB",
    min: 1024,
    max: 8 * mib,
  }),
  receiveMaximum: count({
    doc: "Unacknowledged QoS 1 and 2 messages taken from one client. Beyond: 0x93.",
    reload: "restart",
    fallback: "1000",
    min: 1,
    max: uint16Max,
  }),
  inflightMax: count({
    doc: "Unacknowledged messages sent to one client; more wait.",
    reload: "restart",
    fallback: "1000",
    min: 1,
    max: uint16Max,
  }),
  inflightBytesMax: size({
    doc: "Bytes of unacknowledged messages sent to one client; one message always fits.",
    reload: "restart",
    fallback: "1MiB",
    min: 1024,
    max: gib,
    zero: "no_limit",
  }),
  topicAliasMaximum: count({
    doc: "Topic aliases of one connection, each way. Beyond: 0x94.",
    reload: "restart",
    fallback: "16",
    min: 0,
    max: uint16Max,
    zero: "as_is",
    zeroDoc: "aliases are off",
  }),
  topicLevelsMax: count({
    doc: "Levels of a topic or filter. Beyond: 0x90, filters 0x8F.",
    reload: "restart",
    fallback: "128",
    min: 1,
    max: 1024,
  }),
  userPropertiesMax: count({
    doc: "User properties of one packet. Beyond: 0x97.",
    reload: "restart",
    fallback: "64",
    min: 1,
    max: 10_000,
    zero: "no_limit",
  }),
  subscriptionsMax: count({
    doc: "Subscriptions of one client. Beyond: 0x97 for that filter.",
    reload: "restart",
    fallback: "1000",
    min: 1,
    max: 1_000_000,
    zero: "no_limit",
  }),
  filtersMax: count({
    doc: "Filters of one SUBSCRIBE or UNSUBSCRIBE. Beyond: 0x97 and closed.",
    reload: "restart",
    fallback: "1000",
    min: 1,
    max: uint16Max,
  }),
  clientIdBytesMax: size({
    doc: "Longest client id. Beyond: 0x85.",
    reload: "restart",
    fallback: "1KiB",
    min: 23,
    max: 64 * kib - 1,
  }),
  connectionsMax: count({
    doc: "Connections at once. Beyond: closed. Each needs a descriptor (ulimit -n).",
    reload: "restart",
    fallback: "100000",
    min: 1,
    max: 10_000_000,
  }),
  sessionExpiryMax: duration({
    doc: "Longest life of a session without its client. Longer wishes are capped and told.",
    reload: "restart",
    fallback: "7d",
    min: second,
    max: 36_500 * day,
    zero: "no_limit",
  }),
  outboundBufferMax: size({
    doc: "Bytes queued to one connection. At the limit QoS 0 is dropped and counted, others wait.",
    reload: "restart",
    fallback: "4MiB",
    min: 64 * kib,
    max: gib,
  }),
  publishWait: duration({
    doc: "How long a message that cannot be stored is held back before it is refused.",
    reload: "restart",
    fallback: "15s",
    min: 0,
    max: 10 * minute,
    zero: "as_is",
    zeroDoc: "refused at once",
  }),
  subscribeWait: duration({
    doc: "How long a SUBSCRIBE waits for its commit before its filters fail.",
    reload: "restart",
    fallback: "10s",
    min: 0,
    max: 10 * minute,
    zero: "as_is",
    zeroDoc: "failed at once",
  }),
  connectWait: duration({
    doc: "How long a CONNECT waits for its session, a takeover included. Beyond: 0x88.",
    reload: "restart",
    fallback: "15s",
    min: 100,
    max: 10 * minute,
  }),
  publishesMax: count({
    doc: "Unfinished publishes of one client, whatever its QoS. Beyond: it is not read.",
    reload: "restart",
    fallback: "2000",
    min: 1,
    max: 1_000_000,
  }),
  publishBytesMax: size({
    doc: "Bytes of unfinished publishes of one client; one message always fits.",
    reload: "restart",
    fallback: "4MiB",
    min: 64 * kib,
    max: gib,
  }),
  memoryQueueMax: count({
    doc: "Messages waiting for a session that ends with its connection. Beyond: 0x97, closed.",
    reload: "restart",
    fallback: "100000",
    min: 1,
    max: 10_000_000,
  }),
  memoryQueueBytesMax: size({
    doc: "Bytes of the same.",
    reload: "restart",
    fallback: "16MiB",
    min: 64 * kib,
    max: gib,
  }),
  storeQos0: flag({
    doc: "Whether QoS 0 messages are stored for durable sessions.",
    reload: "restart",
    fallback: "false",
  }),
  keepAliveMax: duration({
    doc: "Longest keep alive granted; clients that ask for more, or for none, are told this one.",
    reload: "restart",
    fallback: "0",
    min: second,
    max: uint16Max * second,
    zero: "no_limit",
  }),
  preAuthBytes: size({
    doc: "Bytes taken from a connection before it is authenticated. Beyond: closed.",
    reload: "restart",
    fallback: "64KiB",
    min: 1024,
    max: 8 * mib,
  }),
  preAuthTime: duration({
    doc: "Time a connection has to be authenticated. Beyond: closed.",
    reload: "restart",
    fallback: "10s",
    min: 100,
    max: 10 * minute,
  }),
  preAuthSocketsPerAddress: count({
    doc: "Connections of one address that are not authenticated yet. Beyond: closed.",
    reload: "restart",
    fallback: "64",
    min: 1,
    max: 1_000_000,
    zero: "no_limit",
  }),
  refuseControlCharacters: flag({
    doc: "Whether texts with control characters (U+0001-1F, U+007F-9F) are malformed.",
    reload: "restart",
    fallback: "false",
  }),
  restartGrace: duration({
    doc: "After a start, time before wills and expiries of absent clients count.",
    reload: "restart",
    fallback: "30s",
    min: 0,
    max: day,
    zero: "as_is",
    zeroDoc: "they count at once",
  }),
});

const store = group("Caches and checkpoints of the message store.", {
  blockCache: size({
    doc: "Memory of decoded blocks, shared by all readers.",
    reload: "restart",
    fallback: "64MiB",
    min: mib,
    max: 256 * gib,
  }),
  openSlabs: count({
    doc: "Slabs of ended generations kept open; the one that was not read longest is closed.",
    reload: "restart",
    fallback: "64",
    min: 1,
    max: 10_000,
  }),
  topicCacheMax: count({
    doc: "Topics of one shard whose place is remembered.",
    reload: "restart",
    fallback: "100000",
    min: 100,
    max: 10_000_000,
  }),
  checkpointBytes: size({
    doc: "Log of one shard after which it checkpoints; bounds the replay at start.",
    reload: "restart",
    fallback: "64MiB",
    min: 64 * kib,
    max: 16 * gib,
  }),
  checkpointAge: duration({
    doc: "Age of unsaved changes of one shard after which it checkpoints.",
    reload: "restart",
    fallback: "1m",
    min: second,
    max: 60 * minute,
  }),
});

export const keyTable = { data, listeners, logger, log, databases, groups, mqtt, store };

/** The configuration of a node: plain data, all defaults filled in. */
export type Settings = SettingsOf<typeof keyTable>;
