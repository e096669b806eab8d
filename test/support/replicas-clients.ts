// Clients of a replicated store that ask whatever node they come to, and go on at another with what they
// do not know the fate of: transactions with an order that shows, and exactly-once publishers.
//
// What they rely on: a transaction of unknown fate may still happen, so the next try reads what says that
// it has; a packet id is taken once for all owners, and an older owner stores nothing any more.

import type { SeededRandom } from "../../src/base/index.ts";
import type { AppendOutcome, LocalStore, MapShard } from "../../src/store/index.ts";
import type { ReplicasCoverage } from "./replicas-coverage.ts";
import { appendRequest } from "./store-calls.ts";

export type ReplicaClients = {
  readonly random: SeededRandom;
  readonly coverage: ReplicasCoverage;
  readonly isOver: () => boolean;
  readonly pause: (ms: number) => Promise<unknown>;
  /** Tries at one node after the other until it is done. */
  readonly insist: <T>(group: number, attempt: (store: LocalStore) => Promise<T>) => Promise<T>;
  /** Acked; the time of a repeat is not known. */
  readonly acked: (value: string, timeUs: number | undefined) => void;
};

export const stateGroup = 2;
export const messagesGroup = 3;
const accounts = 4;
const accountStart = 100;

const numberOf = (entry: { readonly value: Buffer } | undefined): number =>
  Number(entry?.value.toString() ?? 0);
const bytesOf = (value: number | string): Buffer => Buffer.from(String(value));

/** Keys of one writer: each round happens once, whatever became of its tries. */
export async function writeKeys(
  clients: ReplicaClients,
  writer: number,
  after: (key: string, value: string | undefined) => Promise<void>,
): Promise<void> {
  const { random, coverage } = clients;
  const mark = `s/${writer}`;
  for (let round = 1; !clients.isOver(); round++) {
    const key = `k/${writer}/${round % 4}`;
    const value = round % 9 === 0 ? undefined : bytesOf(round);
    await clients.insist(stateGroup, async (store) => {
      const map = store.state("owner");
      if (round % 3 !== 0) return guarded(map, mark, round, { key, value });
      await map.transact(async (tx) => {
        if (numberOf(await tx.get(mark)) >= round) return;
        tx.put(mark, bytesOf(round));
        if (value === undefined) tx.delete(key);
        else tx.put(key, value);
      });
    });
    coverage.keysAcked++;
    await after(key, value?.toString());
    await clients.pause(random.between(1, 50));
  }
}

async function guarded(
  map: MapShard,
  mark: string,
  round: number,
  write: { key: string; value: Buffer | undefined },
): Promise<void> {
  const before = await map.get(mark);
  if (numberOf(before) >= round) return;
  await new Promise<void>((resolve, reject) => {
    const writes = [write, { key: mark, value: bytesOf(round) }];
    const guards = [{ key: mark, timeUs: before?.timeUs }];
    map.write(writes, guards, (error) => (error ? reject(error) : resolve()));
  });
}

/** Each takes the next number, which nobody else gets, and moves something between two accounts. */
export async function transfer(clients: ReplicaClients, client: number): Promise<void> {
  const { random, coverage } = clients;
  const taken: number[] = [];
  for (let round = 1; !clients.isOver(); round++) {
    const id = `c${client}.${round}`;
    const [from, to] = [random.below(accounts), random.below(accounts)];
    const number = await clients.insist(stateGroup, async (store) => {
      const { value } = await store.state("owner").transact(async (tx) => {
        // A try whose fate was not known has happened.
        const done = await tx.get(`id/${id}`);
        if (done !== undefined) return numberOf(done);
        const next = numberOf(await tx.get("n")) + 1;
        tx.assertAbsent(`t/${next}`);
        tx.put("n", bytesOf(next));
        tx.put(`t/${next}`, Buffer.from(id));
        tx.put(`id/${id}`, bytesOf(next));
        if (from === to) return next;
        const [a, b] = [await tx.get(`a/${from}`), await tx.get(`a/${to}`)];
        tx.put(`a/${from}`, bytesOf((a === undefined ? accountStart : numberOf(a)) - 1));
        tx.put(`a/${to}`, bytesOf((b === undefined ? accountStart : numberOf(b)) + 1));
        return next;
      });
      return value;
    });
    if (number <= (taken.at(-1) ?? 0)) throw new Error(`${id} got ${number} after ${taken.at(-1)}`);
    taken.push(number);
    coverage.transactionsAcked++;
    await clients.pause(random.between(20, 200));
  }
}

/** Sets its flag where the list shows none, else takes its own away: two are never set. */
export async function flag(clients: ReplicaClients, client: number): Promise<void> {
  const { random, coverage } = clients;
  while (!clients.isOver()) {
    await clients.insist(stateGroup, async (store) => {
      await store.state("owner").transact(async (tx) => {
        const set = await tx.list("f/", 10);
        if (set.length === 0) tx.put(`f/${client}`, bytesOf(1));
        else tx.delete(`f/${client}`);
      });
      const set = await store.state("owner").list("f/", { countMax: 10 });
      if (set.length > 1) throw new Error(`${set.map(({ key }) => key).join(" and ")} are set`);
    });
    coverage.rangesAcked++;
    await clients.pause(random.between(50, 250));
  }
}

/** A publisher at QoS 2 that changes its node with each try: a new owner each time. */
export async function publishOnce(clients: ReplicaClients, client: number): Promise<void> {
  const { random, coverage } = clients;
  const publisher = `q${client}`;
  const incarnation = 1;
  let ownerEpoch = 0;
  for (let round = 1; !clients.isOver(); round++) {
    const packetId = 1 + (round % 3);
    const value = `${publisher}.${round}`;
    let tries = 0;
    const outcome = await clients.insist(messagesGroup, async (store) => {
      const claim = { incarnation, ownerEpoch: ++ownerEpoch };
      if (++tries > 1) coverage.ownersReplaced++;
      await store.evidence.open(publisher, claim);
      try {
        const evidence = { ...claim, packetId };
        const request = appendRequest(`q/${client}`, value, { publisher, qos: 2, evidence });
        return await new Promise<AppendOutcome>((resolve, reject) => {
          store.append(request, (error, done) => (done ? resolve(done) : reject(error)));
        });
      } finally {
        store.evidence.close(publisher, claim);
      }
    });
    clients.acked(value, outcome.kind === "stored" ? outcome.timeUs : undefined);
    coverage[outcome.kind === "stored" ? "onceStored" : "onceRepeats"]++;
    await clients.insist(messagesGroup, async (store) => {
      const claim = { incarnation, ownerEpoch: ++ownerEpoch };
      await store.evidence.open(publisher, claim);
      const isTaken = store.evidence.list(publisher, claim).includes(packetId);
      await new Promise<void>((resolve, reject) => {
        store.evidence.release(publisher, claim, packetId, (error) =>
          error ? reject(error) : resolve(),
        );
      });
      store.evidence.close(publisher, claim);
      if (isTaken) coverage.releases++;
    });
    await clients.pause(random.between(10, 150));
  }
}

/** What transactions left: numbers without a gap, each under one id, and nothing made or lost. */
export function judgeTransfers(found: ReadonlyMap<string, string>): void {
  const count = Number(found.get("n") ?? 0);
  const ids = new Set<string>();
  for (let number = 1; number <= count; number++) {
    const id = found.get(`t/${number}`);
    if (id === undefined) throw new Error(`nobody has the number ${number} of ${count}`);
    if (ids.has(id)) throw new Error(`${id} happened twice`);
    if (found.get(`id/${id}`) !== String(number)) throw new Error(`${id} is not ${number}`);
    ids.add(id);
  }
  let total = 0;
  for (let account = 0; account < accounts; account++) {
    total += Number(found.get(`a/${account}`) ?? accountStart);
  }
  if (total !== accounts * accountStart) throw new Error(`accounts hold ${total}`);
  const extra = [...found.keys()].filter((key) => key.startsWith("t/")).length - count;
  if (extra !== 0) throw new Error(`${extra} numbers are above the last`);
}
