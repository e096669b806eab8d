// Keys: what the broker bears before it pushes back. See `../keys.ts` for the rules.

import { count, duration, group, list, named, size } from "../schema.ts";
import { gib, kib, mib, minute, second } from "./units.ts";

const ratePerSMax = 100_000_000;

export const protection = group("Rates and overload. Rates slow clients down, they lose nothing.", {
  connectionsPerAddress: count({
    doc: "Connections of one address at once (IPv6: of one /64). Beyond: closed.",
    reload: "restart",
    fallback: "0",
    min: 1,
    max: 10_000_000,
    zero: "no_limit",
  }),
  connectRate: count({
    doc: "New connections in a second. Beyond: closed.",
    reload: "restart",
    fallback: "0",
    min: 1,
    max: ratePerSMax,
    zero: "no_limit",
  }),
  connectRatePerAddress: count({
    doc: "The same of one address.",
    reload: "restart",
    fallback: "0",
    min: 1,
    max: ratePerSMax,
    zero: "no_limit",
  }),
  messageRate: count({
    doc: "PUBLISHes of all clients in a second. Beyond: they are not read for a while.",
    reload: "restart",
    fallback: "0",
    min: 1,
    max: ratePerSMax,
    zero: "no_limit",
  }),
  byteRate: size({
    doc: "Bytes of all clients in a second. Beyond: they are not read for a while.",
    reload: "restart",
    fallback: "0",
    min: kib,
    max: 64 * gib,
    zero: "no_limit",
  }),
  messageRatePerAddress: count({
    doc: "PUBLISHes of one address in a second. Beyond: not read for a while.",
    reload: "restart",
    fallback: "0",
    min: 1,
    max: ratePerSMax,
    zero: "no_limit",
  }),
  byteRatePerAddress: size({
    doc: "Bytes of one address in a second. Beyond: not read for a while.",
    reload: "restart",
    fallback: "0",
    min: kib,
    max: 64 * gib,
    zero: "no_limit",
  }),
  overloadLag: duration({
    doc: "Lateness of the event loop at which new connections are shed; at twice as much QoS 0 is.",
    reload: "restart",
    fallback: "1s",
    min: 50,
    max: minute,
    zero: "no_limit",
  }),
  memoryMax: size({
    doc: "Memory of the process at which new connections are shed; a tenth above it QoS 0 is.",
    reload: "restart",
    fallback: "0",
    min: 64 * mib,
    max: 1024 * gib,
    zero: "no_limit",
  }),
  failedLogins: count({
    doc: "Wrong logins of one user name from one address in a minute. Beyond: refused unseen, 0x9F.",
    reload: "restart",
    fallback: "10",
    min: 1,
    max: 1_000_000,
    zero: "no_limit",
  }),
  failedLoginsPerAddress: count({
    doc: "The same of one address, whatever the names; who was let in from there before still is.",
    reload: "restart",
    fallback: "100",
    min: 1,
    max: 1_000_000,
    zero: "no_limit",
  }),
  flappingTakeovers: count({
    doc: "Takeovers of one client id in a minute that are told in the log.",
    reload: "restart",
    fallback: "5",
    min: 2,
    max: 10_000,
  }),
  flappingSlowdown: count({
    doc: "Takeovers of one client id in a minute after which each further one waits a second.",
    reload: "restart",
    fallback: "300",
    min: 2,
    max: 1_000_000,
  }),
  sysInterval: duration({
    doc: "How often `$SYS` and `$flagstone` are published to those who subscribed.",
    reload: "restart",
    fallback: "10s",
    min: second,
    max: 60 * minute,
    zero: "as_is",
    zeroDoc: "never",
  }),
});

export const devices = named(
  {
    doc: "Clients that take less than they can say, such as small devices before MQTT 5.",
    label: "device",
    builtIn: {},
    builtInWhenNamed: "kept",
  },
  {
    clientIds: list({
      doc: "Client ids, with `*` for any text. The first profile that fits a client counts.",
      reload: "restart",
      fallback: [],
      itemsMax: 1000,
      expected: "a list such as [esp-*]",
    }),
    packetMax: size({
      doc: "Larger messages are not sent, as if they had been delivered.",
      reload: "restart",
      fallback: "0",
      min: 128,
      max: 8 * mib,
      zero: "no_limit",
    }),
    messageRate: count({
      doc: "Messages sent in a second; more wait, QoS 0 that has no queue is dropped.",
      reload: "restart",
      fallback: "0",
      min: 1,
      max: 1_000_000,
      zero: "no_limit",
    }),
  },
);
