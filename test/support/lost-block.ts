// A sealed slab that has lost one block together with the row that led to it.

import type { LocalStore } from "../../src/store/index.ts";
import { append, appendRequest } from "./store-calls.ts";
import { StoreMachine } from "./store-machine.ts";

export async function put(m: StoreMachine, store: LocalStore, topic: string, value = topic) {
  const outcome = await m.clock.complete(append(store, appendRequest(topic, value)));
  return outcome.kind === "stored" ? outcome.timeUs : 0;
}

/** Path of the only messages shard's folder. */
export const shardDir = (m: StoreMachine): string =>
  m.kv.paths.find((path) => path.includes("messages"))!.replace(/\/g\d+\/.*|\/store$/, "");

/**
 * Twelve TTVs of two topics in a generation that has ended; one block of them and the row that led to it
 * are gone, and the log has let go of them. The machine is off.
 */
export async function loseTheFifth(
  prepare: (store: LocalStore) => void = () => undefined,
): Promise<{ m: StoreMachine; times: readonly number[] }> {
  const m = new StoreMachine({ seed: 10, store: { shards: 1 }, segmentBytes: 4096 });
  const { store } = await m.boot();
  prepare(store);
  const times: number[] = [];
  for (let n = 0; n < 12; n++) {
    times.push(await put(m, store, `t/${n % 2}`, `${n}`));
    await m.clock.complete(store.checkpoint());
  }
  await m.clock.complete(store.rotate());
  for (let n = 0; n < 20; n++) await put(m, store, "u", `later-${n}-${"x".repeat(500)}`);
  await m.clock.complete(store.checkpoint());
  await m.clock.advance(2_000);
  m.kill();
  const lost = Buffer.alloc(8);
  lost.writeBigUInt64BE(BigInt(times[4]!));
  for (const name of ["blocks", "index"]) {
    m.kv.hollow(`${shardDir(m)}/g00000001/${name}`, (key) => !key.includes(lost));
  }
  return { m, times };
}
