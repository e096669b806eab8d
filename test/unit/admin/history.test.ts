import { beforeAll, expect, test } from "vitest";
import { type HistoryPosition, readHistory } from "../../../src/admin/history.ts";
import { messageView } from "../../../src/admin/message-view.ts";
import { SimClock } from "../../../src/base/index.ts";
import { BrokerWorld } from "../../support/broker-world.ts";
import { publishing } from "../../support/raw-mqtt.ts";

const payloadBytes = 100 * 1024;
const count = 40;
let world: BrokerWorld;

beforeAll(async () => {
  world = await BrokerWorld.start();
  const s = await world.connect("s", { properties: { sessionExpiryS: 36_000 } });
  s.subscribe("a/#", { qos: 1 });
  await world.advance(200);
  s.drop();
  const large = new Map<string, Awaited<ReturnType<typeof world.connect>>>();
  for (const name of ["p", "q", "r"]) large.set(name, await world.connect(name));
  // In turn: a page has messages of several shards, and ends by its own size.
  for (let number = 1; number <= count / 4; number++) {
    for (const [name, p] of large) {
      p.say(publishing("a/1", `${name}${number}`.padStart(payloadBytes), { id: number }));
      await world.advance(50);
    }
  }
  const p = await world.connect("small");
  for (let number = 1; number <= count / 4; number++) {
    p.say(publishing("a/2", `small${number}`, { id: number }));
    await world.advance(50);
  }
});

type Read = { readonly bytesMax: number; readonly countMax?: number };

async function pagesOf({ bytesMax, countMax = 1000 }: Read, show: "beginning" | "whole") {
  const { clock, store } = world;
  const pages = [];
  let after: HistoryPosition | undefined;
  do {
    const range = { filter: "a/#", fromUs: 0, toUs: Number.MAX_SAFE_INTEGER, after };
    const page = await clock.complete(
      readHistory(store.inner as never, clock, {
        ...{ ...range, countMax, bytesMax },
        show: (ttv) => messageView(ttv, show),
      }),
    );
    pages.push(page.messages);
    after = page.next;
  } while (after !== undefined);
  return pages.filter((page) => page.length > 0);
}

const textsOf = (pages: Awaited<ReturnType<typeof pagesOf>>): string[] =>
  pages.flat().map(({ payload = "" }) => payload.trim());

test("whole payloads come in pages of bounded bytes, each message once", async () => {
  const bytesMax = 5 * payloadBytes;
  const pages = await pagesOf({ bytesMax }, "whole");
  const texts = textsOf(pages);
  expect(texts).toHaveLength(count);
  expect(new Set(texts).size).toBe(count);
  expect(pages.flat().some(({ isCut }) => isCut === true)).toBe(false);
  const times = pages.flat().map(({ timeUs }) => timeUs);
  expect(times).toEqual([...times].sort((a, b) => a - b));
  for (const page of pages) {
    const sizeBytes = page.reduce((sum, message) => sum + message.payloadBytes, 0);
    expect(sizeBytes).toBeLessThanOrEqual(bytesMax);
  }
});

test("one message is a page, however small the page may be", async () => {
  const pages = await pagesOf({ bytesMax: 1 }, "whole");
  expect(pages).toHaveLength(count);
  expect(new Set(textsOf(pages)).size).toBe(count);
});

test("in lists a payload is cut at 64 KiB, and says so", async () => {
  const [message] = (await pagesOf({ bytesMax: 1, countMax: 1 }, "beginning")).flat();
  expect(message).toMatchObject({ payloadBytes, isCut: true });
  expect(message?.payload).toHaveLength(64 * 1024);
});

test("a page of several shards ends by the bytes of all of them, and the next goes on behind it", async () => {
  const clock = new SimClock();
  const ttvs = Array.from({ length: 6 }, (_, index) => ({
    ...{ timeUs: index + 1, frame: Buffer.alloc(10), ref: { shard: 1 + (index % 2) } },
  }));
  const store = {
    logShards: [1, 2],
    tail: () => new Map([1, 2].map((shard) => [shard, 6])),
    subscribe: ({
      positions,
      port,
    }: {
      positions: Map<number, number>;
      port: { offer: (ttv: unknown) => boolean };
    }) => {
      const wanted = ttvs.filter(({ timeUs, ref }) => timeUs > (positions.get(ref.shard) ?? 0));
      clock.soon(() => void wanted.every((ttv) => port.offer(ttv)));
      return { atTail: true, close: () => undefined };
    },
  };
  const read = (after?: HistoryPosition) =>
    clock.complete(
      readHistory(store as never, clock, {
        ...{ filter: "#", fromUs: 0, toUs: 6, after, countMax: 100, bytesMax: 40 },
        show: ({ timeUs }) => timeUs,
      }),
    );
  const first = await read();
  expect(first.messages).toEqual([1, 2, 3, 4]);
  expect((await read(first.next)).messages).toEqual([5, 6]);
});
