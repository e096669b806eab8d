// Keys: databases and the groups that share resources. See `../keys.ts` for the rules.

import { choice, count, duration, group, list, named, size } from "../schema.ts";
import { day, gib, kib, mib, second } from "./units.ts";

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
  rootThresholds: list({
    doc: "Thresholds for topics by their first level, in place of `threshold`: `metrics=1000/10` is 1000 for the second level of `metrics/...` and 10 for all below it.",
    reload: "restart",
    fallback: [],
    itemsMax: 256,
    expected: "a list such as [metrics=1000/10, plant=50]",
  }),
  streamsMax: count({
    doc: "Streams of one slab; topics beyond it share one stream. Each may hold an open block.",
    reload: "restart",
    fallback: "256",
    min: 3,
    max: 16_384,
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

const retention = group("How long messages stay, whoever has read them.", {
  age: duration({
    doc: "Older messages go, a generation (an eighth of it) at a time. Late readers are told.",
    reload: "restart",
    fallback: "7d",
    min: 8 * second,
    max: 36_500 * day,
    zero: "as_is",
    zeroDoc: "no limit of age",
  }),
  size: size({
    doc: "Bytes of messages in the database; beyond it the oldest generation goes.",
    reload: "restart",
    fallback: "0",
    min: mib,
    max: 1024 * 1024 * gib,
    zero: "as_is",
    zeroDoc: "only the quota of the group bounds it",
  }),
});

export const databases = named(
  {
    doc: "What is stored, by kind. Databases named here are made at start and brought in line with it; `messages` and `state` are always there.",
    label: "database",
    builtIn: { messages: {}, state: { layout: "map" } },
    builtInWhenNamed: "kept",
  },
  {
    layout: choice(["log", "map"], {
      doc: "How messages lie on disk: every one (log), or the latest of each topic (map). Fixed.",
      reload: "restart",
      fallback: "log",
    }),
    shards,
    topics: list({
      doc: "Topic filters whose messages are stored here; the most specific of all databases wins.",
      reload: "restart",
      fallback: [],
      itemsMax: 1000,
      expected: "a list of topic filters such as [metrics/#]",
    }),
    retention,
    layoutOptions,
  },
);

export const groups = named(
  {
    doc: "Resources that databases share on this node. What no group names belongs to `default`.",
    label: "group",
    builtIn: { default: {} },
    builtInWhenNamed: "kept",
  },
  {
    databases: list({
      doc: "Databases of the group.",
      reload: "restart",
      fallback: [],
      itemsMax: 256,
      expected: "a list of databases such as [metrics, events]",
    }),
    quota: size({
      doc: "Bytes on disk, the log included. Near it what nobody needs goes; at it publishes wait, then fail.",
      reload: "restart",
      fallback: "0",
      min: 32 * mib,
      max: 1024 * 1024 * gib,
      zero: "as_is",
      zeroDoc: "80 % of the volume, at least 1GiB",
    }),
    onFull: choice(["refuse", "drop_oldest"], {
      doc: "At the quota: refuse what is new, or drop the oldest, whoever still needs it.",
      reload: "restart",
      fallback: "refuse",
    }),
    fsync: choice(["always", "interval"], {
      doc: "When a stored message is acknowledged: once it is on the medium (always), or once the operating system has it (interval). With interval the end of the machine, not of the process, can lose one flush of the log, `log.flushBytesMax` or `log.maxItems`. Sessions, retained messages and subscriptions always wait.",
      reload: "restart",
      fallback: "always",
    }),
    writeBuffer: size({
      doc: "Memory of messages not yet written to slabs, a sixteenth of the quota at most. At the limit publishes wait, then fail.",
      reload: "restart",
      fallback: "256MiB",
      min: mib,
      max: 64 * gib,
    }),
    workSlots: count({
      doc: "Background work at once: re-packing, verifying, removing.",
      reload: "restart",
      fallback: "2",
      min: 1,
      max: 64,
    }),
  },
);
