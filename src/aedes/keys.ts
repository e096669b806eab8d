// Keys of an Aedes persistence in the `state` database, all in one shard, so that what belongs
// together is written as one entry:
//
//   aedes/NAME/sub/CLIENT/FILTER           subscription
//   aedes/NAME/retained/TOPIC              retained packet
//   aedes/NAME/will/CLIENT                 will
//   aedes/NAME/in/CLIENT/ID                QoS 2 packet that came and is not released
//   aedes/NAME/out/CLIENT/ORDER            queued packet, in order
//   aedes/NAME/id/CLIENT/ID                the order of what was sent under a message id
//   aedes/NAME/body/NUMBER                 body of a packet, whoever needs it
//   aedes/NAME/users/NUMBER                how many entries do; absent: one
//   aedes/NAME/numbers                     numbers below it may be taken

import { escapeLevel } from "../store/index.ts";

/** 2^53 in hexadecimal, so that numbers sort as texts. */
const numberDigits = 14;
const idDigits = 5;

export type AedesKeys = ReturnType<typeof aedesKeys>;

export function aedesKeys(name: string) {
  const root = `aedes/${name}`;
  return {
    root,
    numbers: `${root}/numbers`,
    subscriptions: `${root}/sub/`,
    subscription: (client: string, filter: string) =>
      `${root}/sub/${escapeLevel(client)}/${filter}`,
    retained: `${root}/retained/`,
    wills: `${root}/will/`,
    will: (client: string) => `${root}/will/${escapeLevel(client)}`,
    inbox: (client: string) => `${root}/in/${escapeLevel(client)}/`,
    inbound: (client: string, id: number) =>
      `${root}/in/${escapeLevel(client)}/${String(id).padStart(idDigits, "0")}`,
    queue: (client: string) => `${root}/out/${escapeLevel(client)}/`,
    sent: (client: string, id: number) =>
      `${root}/id/${escapeLevel(client)}/${String(id).padStart(idDigits, "0")}`,
    body: (number: number) => `${root}/body/${formatNumber(number)}`,
    users: (number: number) => `${root}/users/${formatNumber(number)}`,
  };
}

export function formatNumber(number: number): string {
  return number.toString(16).padStart(numberDigits, "0");
}
