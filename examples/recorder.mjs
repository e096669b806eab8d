// A time-series recorder on the store alone, without a broker: samples go into `messages`, are on
// disk when `record` resolves, and are read back by filter and time.
import { openLocalStore } from "flagstone/store";

const dir = process.argv[2] ?? "./recorder-data";

/** One sample; resolves with its time in microseconds. */
function record(store, topic, value) {
  const sample = {
    ...{ topic, publisher: "recorder", form: "raw", qos: 1, retain: false },
    ...{ expiryUs: 0, expiryOffset: 0, keep: true, evidence: undefined },
    frame: Buffer.from(String(value)),
  };
  return new Promise((resolve, reject) => {
    store.append(sample, (error, outcome) => (error ? reject(error) : resolve(outcome.timeUs)));
  });
}

/** All samples that match and are later than `afterUs`, in order for each shard. */
function read(store, filter, afterUs = 0) {
  const samples = [];
  const positions = new Map(store.logShards.map((shard) => [shard, afterUs]));
  const behind = new Set(store.logShards);
  return new Promise((resolve) => {
    const subscriber = store.subscribe({
      filters: [{ filter, start: new Map(), durable: false, context: undefined }],
      positions,
      port: {
        offer: ({ topic, timeUs, frame }) => {
          samples.push({ topic, timeUs, value: Number(frame) });
          return true;
        },
        moved: () => undefined,
        missed: ({ count }) => console.warn(`${count} samples were removed before they were read`),
        reachedTail: (shard) => {
          behind.delete(shard);
          if (behind.size > 0) return;
          subscriber.close();
          resolve(samples);
        },
      },
    });
  });
}

let middleUs = 0;
{
  const opened = await openLocalStore({ dir });
  for (let minute = 0; minute < 60; minute++) {
    const atUs = await record(opened.store, `plant/${minute % 2}/temperature`, 20 + minute);
    if (minute === 29) middleUs = atUs;
  }
  await opened.close();
}
const opened = await openLocalStore({ dir });
const all = await read(opened.store, "plant/+/temperature");
const late = await read(opened.store, "plant/1/#", middleUs);
console.log(`${all.length} samples after a restart, ${late.length} of plant 1 in the second half`);
console.log(`highest ${Math.max(...all.map(({ value }) => value))}`);
await opened.close();
