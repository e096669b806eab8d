import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { afterEach, describe, expect, test } from "vitest";
import { cutFrames, parseHex, RawClient } from "../../support/raw-client.ts";

let server: Server | undefined;
afterEach(() => {
  server?.close();
});

/** A peer that does with each connection what the test says. */
function listen(serve: (socket: Socket) => void): Promise<number> {
  return new Promise((resolve) => {
    const opened = createServer((socket) => {
      socket.on("error", () => undefined);
      serve(socket);
    });
    server = opened;
    opened.listen(0, "127.0.0.1", () => {
      resolve((opened.address() as AddressInfo).port);
    });
  });
}

describe("frames", () => {
  test("are cut wherever the stream was split", () => {
    const stream = parseHex("d000 3003000161 40020007");
    for (let at = 0; at <= stream.length; at++) {
      const first = cutFrames(stream.subarray(0, at));
      const second = cutFrames(Buffer.concat([first.rest, stream.subarray(at)]));
      const found = [...first.frames, ...second.frames].map((frame) => frame.toString("hex"));
      expect(found).toEqual(["d000", "3003000161", "40020007"]);
      expect(second.rest).toHaveLength(0);
    }
  });

  test("with a long length are cut by it", () => {
    const frame = Buffer.concat([parseHex("30 c801"), Buffer.alloc(200)]);
    expect(cutFrames(frame).frames).toHaveLength(1);
    expect(cutFrames(frame.subarray(0, 202)).frames).toHaveLength(0);
  });

  test("with a length of five bytes are refused", () => {
    expect(() => cutFrames(parseHex("30 ffffffff7f"))).toThrow("malformed remaining length");
  });
});

describe("a raw client", () => {
  test("gives packets in order, decoded and as bytes", async () => {
    const port = await listen((socket) => socket.write(parseHex("20020000 d000")));
    await using client = await RawClient.open(port, 4);
    expect((await client.expect("connack")).returnCode).toBe(0);
    expect((await client.next()).bytes).toEqual(parseHex("d000"));
  });

  test("says what came instead of what was expected", async () => {
    const port = await listen((socket) => socket.write(parseHex("d000")));
    await using client = await RawClient.open(port, 4);
    await expect(client.expect("puback")).rejects.toThrow("pingresp (d000) came where puback");
  });

  test("says that nothing came", async () => {
    const port = await listen(() => undefined);
    await using client = await RawClient.open(port, 4);
    await expect(client.expect("puback", 30)).rejects.toThrow(
      "no puback within 30 ms; the connection is open; behind that: nothing",
    );
  });

  test("keeps the bytes of a packet that cannot be decoded", async () => {
    // PUBLISH with QoS 3.
    const port = await listen((socket) => socket.write(parseHex("36 05 0001610001")));
    await using client = await RawClient.open(port, 4);
    const frame = await client.next();
    expect(frame).toMatchObject({ type: 3, flags: 6, packet: undefined });
  });

  test("waits for the end of the connection and hands over what came before", async () => {
    const port = await listen((socket) => socket.end(parseHex("e000")));
    await using client = await RawClient.open(port, 5);
    expect((await client.expectClosed()).map(({ type }) => type)).toEqual([14]);
    expect(client.isClosed).toBe(true);
  });

  test("says when the connection stays open", async () => {
    const port = await listen(() => undefined);
    await using client = await RawClient.open(port, 5);
    await expect(client.expectClosed(30)).rejects.toThrow("still open after 30 ms");
  });

  test("finds a packet where nothing should come", async () => {
    const port = await listen((socket) => {
      socket.on("data", () => socket.write(parseHex("3003000161 d000")));
    });
    await using client = await RawClient.open(port, 4);
    await expect(client.expectNothing()).rejects.toThrow("publish (3003000161) came");
  });

  test("does not send what is not hex", () => {
    expect(() => parseHex("c0 0")).toThrow("not hex");
  });
});
