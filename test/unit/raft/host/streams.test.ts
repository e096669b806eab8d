import { expect, test } from "vitest";
import {
  type ByteConnection,
  type Logger,
  SeededRandom,
  SimClock,
  SimNetwork,
} from "../../../../src/base/index.ts";
import { FrameCutter } from "../../../../src/raft/host/frame-cutter.ts";
import { encodeFrame } from "../../../../src/raft/host/frames.ts";
import { decodeHello, encodeHello } from "../../../../src/raft/host/hello.ts";
import {
  defaultStreamSettings,
  type Identity,
  type Life,
  type Member,
  type StreamSettings,
  StreamTransport,
} from "../../../../src/raft/index.ts";

const clusterId = "c1".repeat(16);

type Site = {
  readonly identity: Identity;
  readonly member: Member;
  readonly frames: string[];
  readonly downs: string[];
  readonly transport: StreamTransport;
};

class Streams {
  readonly clock = new SimClock();
  readonly network = new SimNetwork({ clock: this.clock, random: new SeededRandom(1) });
  readonly said: string[] = [];

  async site(
    number: number,
    changes: Partial<StreamSettings & Identity & { life: Life }> = {},
  ): Promise<Site> {
    const siteId = String(number).padStart(32, "0");
    const diskId = `d${number}`.padStart(32, "0");
    const identity = { clusterId: changes.clusterId ?? clusterId, siteId, diskId };
    const address = { host: `node${number}`, port: 7000 };
    const member = { node: number, siteId, diskId, name: `node${number}`, address, removed: false };
    const note = (event: string, fields: unknown): void => {
      this.said.push(`${number} ${event} ${JSON.stringify(fields)}`);
    };
    const logger: Logger = { debug: note, info: note, warn: note, error: note };
    const { life, ...rest } = changes;
    const settings = { ...defaultStreamSettings, listen: address, ...rest };
    const network = this.network.host(`node${number}`);
    const transport = new StreamTransport(settings, {
      network,
      clock: this.clock,
      logger,
      identity,
      life,
    });
    const site: Site = { identity, member, frames: [], downs: [], transport };
    await this.clock.complete(
      transport.start({
        onFrame: (frame) => site.frames.push(frame.subarray(56, -4).toString()),
        onDown: (down) => site.downs.push(down),
      }),
    );
    return site;
  }
}

function send(from: Site, to: Site, text: string): boolean {
  const frame = encodeFrame(from.identity, "messages", Buffer.from(text));
  return from.transport.send(to.member.siteId, frame);
}

test("frames arrive whole and in order, whatever the stream does to them", async () => {
  const streams = new Streams();
  const [one, two] = [await streams.site(1), await streams.site(2)];
  one.transport.setPeers([two.member]);
  two.transport.setPeers([one.member]);
  expect(send(one, two, "too early")).toBe(false);
  await streams.clock.advance(1_000);
  const texts = Array.from({ length: 50 }, (_, count) => `${count} `.repeat(count * 20));
  for (const text of texts) expect(send(one, two, text)).toBe(true);
  expect(send(two, one, "back")).toBe(true);
  await streams.clock.runUntil(() => two.frames.length === 50 && one.frames.length === 1);
  expect(two.frames).toEqual(texts);
});

test("a broken connection is told, dialled anew, and works again", async () => {
  const streams = new Streams();
  const [one, two] = [await streams.site(1), await streams.site(2)];
  one.transport.setPeers([two.member]);
  two.transport.setPeers([one.member]);
  await streams.clock.advance(1_000);
  streams.network.reset();
  await streams.clock.runUntil(() => one.downs.length === 1);
  expect(send(one, two, "lost")).toBe(false);
  await streams.clock.advance(1_000);
  expect(send(one, two, "again")).toBe(true);
  await streams.clock.runUntil(() => two.frames.includes("again"));
});

test("a peer that falls silent is given up and dialled anew, and the queue stays bounded", async () => {
  const streams = new Streams();
  const [one, two] = [await streams.site(1, { queueBytesMax: 200_000 }), await streams.site(2)];
  one.transport.setPeers([two.member]);
  two.transport.setPeers([one.member]);
  await streams.clock.advance(1_000);
  const speak = streams.network.silence("node1", "node2");
  let refused = 0;
  for (let second = 0; second < 20; second++) {
    if (!send(one, two, "x".repeat(50_000))) refused++;
    await streams.clock.advance(1_000);
    // Still the same connection, so it is the queue that refuses.
    if (second === 8) expect(one.transport.counters.queuesFull).toBeGreaterThan(2);
  }
  expect(refused).toBeGreaterThan(5);
  expect(one.transport.counters.stuck).toBe(1);
  speak();
  await streams.clock.advance(200_000);
  expect(send(one, two, "after")).toBe(true);
  await streams.clock.runUntil(() => two.frames.includes("after"));
});

test("a site that is no member, another cluster or another site at the address is refused by name", async () => {
  const streams = new Streams();
  const one = await streams.site(1);
  const two = await streams.site(2);
  const foreign = await streams.site(3, { clusterId: "ff".repeat(16) });
  two.transport.setPeers([]);
  one.transport.setPeers([two.member]);
  foreign.transport.setPeers([one.member]);
  await streams.clock.advance(2_000);
  expect(send(one, two, "x")).toBe(false);
  expect(send(foreign, one, "x")).toBe(false);
  const said = streams.said.join("\n");
  expect(said).toContain("it refuses us: your site is not a member here");
  expect(said).toContain("this is another cluster");
  const wrong = { ...two.member, siteId: "9".repeat(32) };
  two.transport.setPeers([one.member]);
  one.transport.setPeers([wrong]);
  await streams.clock.advance(4_000);
  expect(streams.said.join("\n")).toContain("another site answers at this address");
});

/** A raw connection to a site; what it answers. */
async function raw(
  streams: Streams,
  site: Site,
): Promise<{ out: ByteConnection; said: Buffer[]; closed: () => boolean }> {
  const said: Buffer[] = [];
  let isClosed = false;
  const out = await streams.clock.complete(
    streams.network.host("stranger").connect(site.member.address, () => ({
      onData: (bytes) => said.push(Buffer.from(bytes)),
      onDrain: () => undefined,
      onClose: () => {
        isClosed = true;
      },
    })),
  );
  return { out, said, closed: () => isClosed };
}

test("a stranger is taken one small frame from, and no more", async () => {
  const streams = new Streams();
  const one = await streams.site(1);
  const random = new SeededRandom(7);
  const inputs = [
    Buffer.from("GET / HTTP/1.1\r\n\r\n"),
    Buffer.alloc(100),
    Buffer.from("7fffffff", "hex"),
    Buffer.from("00000800", "hex"),
    ...Array.from({ length: 50 }, () => random.bytes(1 + random.below(300))),
  ];
  for (const input of inputs) {
    const { out, closed } = await raw(streams, one);
    out.write(input);
    // At the latest when the time for a hello is over.
    await streams.clock.runUntil(closed, 6_000);
  }
  const { out, closed } = await raw(streams, one);
  out.write(Buffer.from("00", "hex"));
  await streams.clock.advance(4_000);
  expect(closed()).toBe(false);
  await streams.clock.runUntil(closed, 2_000);
});

test("frames of another disk than the one that said hello end the connection", async () => {
  const streams = new Streams();
  const [one, two] = [await streams.site(1), await streams.site(2)];
  one.transport.setPeers([two.member]);
  const { out, closed } = await raw(streams, one);
  out.write(encodeFrame(two.identity, "hello", encodeHello("", undefined)));
  out.write(encodeFrame(two.identity, "messages", Buffer.from("good")));
  out.write(
    encodeFrame({ ...two.identity, diskId: "e".repeat(32) }, "messages", Buffer.from("bad")),
  );
  await streams.clock.runUntil(closed);
  expect(one.frames).toEqual(["good"]);
  expect(one.transport.counters.malformed).toBe(1);
});

test("a frame longer than the limit ends the connection before its bytes are waited for", async () => {
  const streams = new Streams();
  const one = await streams.site(1, { frameBytesMax: 10_000 });
  const two = await streams.site(2);
  one.transport.setPeers([two.member]);
  const { out, closed } = await raw(streams, one);
  out.write(encodeFrame(two.identity, "hello", encodeHello("", undefined)));
  out.write(Buffer.from("00002711", "hex"));
  await streams.clock.runUntil(closed, 1_000);
});

test("releases without a common version refuse each other in a sentence", async () => {
  const streams = new Streams();
  const [one, two] = [await streams.site(1), await streams.site(2)];
  one.transport.setPeers([two.member]);
  const { out, said, closed } = await raw(streams, one);
  out.write(encodeFrame(two.identity, "hello", Buffer.from("050900", "hex")));
  await streams.clock.runUntil(closed);
  const hello = decodeHello(Buffer.concat(said).subarray(56, -4));
  expect(hello?.refusal).toBe("you speak versions 5 to 9, we 1 to 1");
});

test("at the limit of connections the oldest stranger gives way, and no member", async () => {
  const streams = new Streams();
  const [one, two] = [await streams.site(1, { connectionsMax: 3 }), await streams.site(2)];
  one.transport.setPeers([two.member]);
  two.transport.setPeers([one.member]);
  await streams.clock.advance(1_000);
  const open = [];
  for (let count = 0; count < 5; count++) {
    open.push(await raw(streams, one));
    await streams.clock.advance(10);
  }
  expect(open.map(({ closed }) => closed())).toEqual([true, true, true, false, false]);
  expect(one.transport.counters.crowded).toBe(3);
  expect(send(two, one, "still heard")).toBe(true);
  await streams.clock.runUntil(() => one.frames.includes("still heard"));
});

const hello = (site: Site, life: Life): Buffer =>
  encodeFrame(site.identity, "hello", encodeHello("", life));
const refusalIn = (said: readonly Buffer[]): string | undefined =>
  decodeHello(Buffer.concat(said).subarray(56, -4))?.refusal;

test("a disk speaks on one connection: its newest takes the place of the one before", async () => {
  const streams = new Streams();
  const [one, two] = [await streams.site(1), await streams.site(2)];
  one.transport.setPeers([two.member]);
  const life = { start: 3, mark: "a".repeat(32) };
  const first = await raw(streams, one);
  first.out.write(hello(two, life));
  await streams.clock.advance(100);
  const second = await raw(streams, one);
  second.out.write(hello(two, life));
  await streams.clock.runUntil(first.closed);
  second.out.write(encodeFrame(two.identity, "messages", Buffer.from("from the second")));
  await streams.clock.runUntil(() => one.frames.length === 1);
  expect(second.closed()).toBe(false);
});

test("a copy of a disk is refused: a start gone by, or a second process of the same start", async () => {
  const streams = new Streams();
  const [one, two] = [await streams.site(1), await streams.site(2)];
  one.transport.setPeers([two.member]);
  const own = await raw(streams, one);
  own.out.write(hello(two, { start: 7, mark: "a".repeat(32) }));
  await streams.clock.advance(100);
  const copies = [6, 7].map((start): [number, string] => [
    start,
    `an older copy of a disk (start ${start}, and 7 was here): ` +
      "remove that member, and join with an empty directory",
  ]);
  for (const isOwnUp of [true, false]) {
    for (const [start, refusal] of copies) {
      const copy = await raw(streams, one);
      copy.out.write(hello(two, { start, mark: "b".repeat(32) }));
      await streams.clock.runUntil(copy.closed);
      expect(refusalIn(copy.said)).toBe(refusal);
    }
    expect(own.closed()).toBe(!isOwnUp);
    own.out.destroy();
    await streams.clock.advance(1_000);
  }
  const next = await raw(streams, one);
  next.out.write(hello(two, { start: 8, mark: "d".repeat(32) }));
  await streams.clock.advance(1_000);
  expect(refusalIn(next.said)).toBe("");
  expect(next.closed()).toBe(false);
});

test("a copy that answers in the place of a member is not spoken to", async () => {
  const streams = new Streams();
  const one = await streams.site(1);
  const two = await streams.site(2, { life: { start: 2, mark: "a".repeat(32) } });
  one.transport.setPeers([two.member]);
  two.transport.setPeers([one.member]);
  await streams.clock.advance(1_000);
  await streams.clock.complete(two.transport.close());
  const copy = await streams.site(2, { life: { start: 1, mark: "b".repeat(32) } });
  copy.transport.setPeers([one.member]);
  await streams.clock.advance(10_000);
  expect(send(one, two, "x")).toBe(false);
  expect(streams.said.join("\n")).toContain("(start 1, and 2 was here): remove");
});

test("a stream cut anywhere gives the same frames", () => {
  const identity = { clusterId, siteId: "1".repeat(32), diskId: "2".repeat(32) };
  const frames = ["", "a", "b".repeat(300)].map((text) =>
    encodeFrame(identity, "messages", Buffer.from(text)),
  );
  const stream = Buffer.concat(frames);
  const random = new SeededRandom(5);
  for (let round = 0; round < 200; round++) {
    const cutter = new FrameCutter(1000);
    const seen: Buffer[] = [];
    for (let at = 0; at < stream.length; ) {
      const size = 1 + random.below(round < 20 ? 3 : 200);
      expect(cutter.add(stream.subarray(at, at + size), (frame) => seen.push(frame) > 0)).toBe(
        true,
      );
      at += size;
    }
    expect(seen).toEqual(frames);
  }
});
