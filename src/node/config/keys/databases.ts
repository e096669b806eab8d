// Keys: databases and the groups that share resources. See `../keys.ts` for the rules.

import { count, duration, group, list, size } from "../schema.ts";
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

export const databases = group("What is stored, by kind.", {
  messages: group("Messages that durable sessions want.", {
    shards,
    retention,
    layoutOptions,
  }),
  state: group("Sessions, subscriptions and retained messages.", { shards }),
});

export const groups = group("Resources that databases share.", {
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
