// Keys of the `state` database that belong to sessions and retained messages.
//
//   session/<client>/claim|closed|cursor|ids|will   one record each
//   session/<client>/out/<send number>              in-flight records, in send order
//   session/<client>/job/<filter>                   retained messages still owed to a SUBSCRIBE
//   sub/<client>/<filter>                           subscriptions: a start reads only them
//   live/<client>  or  due/<time>/<client>          exactly one of them per durable session
//   group/<shared filter>/claim|cursor|ids          durable shared groups, sharded by their names
//   group/<shared filter>/out/<number>              messages that members hold
//   fire/<client>/<epoch>                           wills that are being published
//   retained/<topic>                                sharded by topic, the others by client id
//
// A long client id or filter is replaced by its SHA-256, since a key has a limit; the record holds
// the text.

import { createHash } from "node:crypto";
import { escapeLevel } from "../store/index.ts";

/** Longer texts are hashed: a client id and a filter together stay far below a key's 64 KiB. */
const levelBytesMax = 1024;

/** Longest topic of a retained message: with its prefix it is still a key. */
export const retainedTopicBytesMax = 65_000;

export const livePrefix = "live/";
export const duePrefix = "due/";
export const subscriptionPrefix = "sub/";
export const firePrefix = "fire/";
export const groupPrefix = "group/";
export const retainedPrefix = "retained/";
/** Of the key under `group/` that stands for the group. */
export const groupClaimSuffix = "/claim";

/** Foreign text as one level of a key; different texts give different levels. */
export function keyLevel(text: string): string {
  const escaped = escapeLevel(text);
  if (Buffer.byteLength(escaped) <= levelBytesMax) return escaped;
  // "%~" cannot come out of the escaping above.
  return `%~${createHash("sha256").update(text).digest("hex")}`;
}

export function isHashedLevel(level: string): boolean {
  return level.startsWith("%~");
}

/** A number as a level that sorts by value. */
export function numberLevel(value: number): string {
  return value.toString(16).padStart(16, "0");
}

export type SessionKeys = {
  readonly prefix: string;
  readonly claim: string;
  readonly closed: string;
  readonly cursor: string;
  readonly ids: string;
  readonly will: string;
  readonly outPrefix: string;
  readonly jobPrefix: string;
  readonly subPrefix: string;
  readonly live: string;
  out(sendNumber: number): string;
  job(filter: string): string;
  sub(filter: string): string;
  due(dueUs: number): string;
  readonly firePrefix: string;
  fire(epoch: number): string;
};

export function sessionKeys(clientId: string): SessionKeys {
  const client = keyLevel(clientId);
  const prefix = `session/${client}/`;
  const outPrefix = `${prefix}out/`;
  const jobPrefix = `${prefix}job/`;
  const subPrefix = `${subscriptionPrefix}${client}/`;
  return {
    prefix,
    claim: `${prefix}claim`,
    closed: `${prefix}closed`,
    cursor: `${prefix}cursor`,
    ids: `${prefix}ids`,
    will: `${prefix}will`,
    outPrefix,
    jobPrefix,
    subPrefix,
    live: `${livePrefix}${client}`,
    out: (sendNumber) => outPrefix + numberLevel(sendNumber),
    job: (filter) => jobPrefix + keyLevel(filter),
    sub: (filter) => subPrefix + keyLevel(filter),
    due: (dueUs) => `${duePrefix}${numberLevel(dueUs)}/${client}`,
    firePrefix: `${firePrefix}${client}/`,
    fire: (epoch) => `${firePrefix}${client}/${numberLevel(epoch)}`,
  };
}

export type GroupKeys = {
  readonly prefix: string;
  readonly claim: string;
  readonly cursor: string;
  readonly ids: string;
  readonly outPrefix: string;
  out(number: number): string;
};

/** `name`: the whole shared filter. */
export function groupKeys(name: string): GroupKeys {
  const prefix = `${groupPrefix}${keyLevel(name)}/`;
  const outPrefix = `${prefix}out/`;
  return {
    prefix,
    claim: `${groupPrefix}${keyLevel(name)}${groupClaimSuffix}`,
    cursor: `${prefix}cursor`,
    ids: `${prefix}ids`,
    outPrefix,
    out: (number) => outPrefix + numberLevel(number),
  };
}

/** The client's level in a key under `sub/`. */
export function clientLevelOf(key: string): string {
  return key.slice(subscriptionPrefix.length, key.indexOf("/", subscriptionPrefix.length));
}

/** The filter's level in a key under `sub/`. */
export function filterLevelOf(key: string): string {
  return key.slice(key.indexOf("/", subscriptionPrefix.length) + 1);
}

/** The client's level in a key under `due/`. */
export function clientOfDue(key: string): string {
  return key.slice(duePrefix.length + 17);
}

/** The moment in a key under `due/`. */
export function dueOfKey(key: string): number {
  return Number.parseInt(key.slice(duePrefix.length, duePrefix.length + 16), 16);
}

/** The send number in a key under `out/`. */
export function sendNumberOfKey(key: string): number {
  return Number.parseInt(key.slice(-16), 16);
}
