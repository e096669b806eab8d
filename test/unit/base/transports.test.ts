// What may stand between TCP and MQTT, against real peers: node:tls, ws, and plain sockets.

import http from "node:http";
import net from "node:net";
import { Duplex } from "node:stream";
import tls from "node:tls";
import { afterEach, describe, expect, test, vi } from "vitest";
import WebSocket from "ws";
import {
  type ByteConnection,
  type Listener,
  type ListenOptions,
  nodeNetwork,
  systemClock,
  type TlsRules,
  type WebSocketRules,
} from "../../../src/base/index.ts";
import {
  alice,
  authority,
  mallory,
  type Pair,
  renewed,
  server,
} from "../../support/certificates.ts";
import { proxyV2 } from "../../support/proxy-bytes.ts";

/** Echoes, and keeps what it saw. */
type Seen = {
  readonly connection: ByteConnection;
  received: Buffer;
  closes: number;
  drains: number;
  error: Error | undefined;
};

const open: Listener[] = [];
const cleanup: Array<() => void> = [];

afterEach(async () => {
  vi.restoreAllMocks();
  for (const task of cleanup.splice(0)) task();
  await Promise.all(open.splice(0).map((listener) => listener.close()));
});

async function echo(options: ListenOptions) {
  const seen: Seen[] = [];
  const refused: string[] = [];
  const listener = await nodeNetwork.listen(
    { host: "127.0.0.1", port: 0 },
    (connection) => {
      const one: Seen = {
        ...{ connection, received: Buffer.alloc(0), closes: 0, drains: 0, error: undefined },
      };
      seen.push(one);
      cleanup.push(() => connection.destroy());
      return {
        onData: (bytes) => {
          one.received = Buffer.concat([one.received, bytes]);
          connection.write(Buffer.from(bytes));
        },
        onDrain: () => {
          one.drains++;
        },
        onClose: (error) => {
          one.closes++;
          one.error = error;
        },
      };
    },
    { refused: (_remote, reason) => refused.push(reason), ...options },
  );
  open.push(listener);
  const { port } = listener.address as { port: number };
  return { listener, port, seen, refused };
}

async function until(done: () => boolean): Promise<void> {
  for (let round = 0; !done(); round++) {
    if (round > 2000) throw new Error("it never came");
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}

const tlsRules: TlsRules = {
  material: { ...server, ca: undefined },
  versionMin: "TLSv1.2",
  clientCertificate: "none",
};

type Spoken = { socket: tls.TLSSocket; text: string; closed: boolean; error: string | undefined };

function secure(port: number, options: tls.ConnectionOptions = {}): Spoken {
  const socket = tls.connect({ port, host: "127.0.0.1", ca: authority, ...options });
  const spoken: Spoken = { socket, text: "", closed: false, error: undefined };
  socket.on("data", (bytes) => {
    spoken.text += bytes.toString("latin1");
  });
  socket.on("error", (error: NodeJS.ErrnoException) => {
    spoken.error = error.code ?? error.message;
  });
  socket.on("close", () => {
    spoken.closed = true;
  });
  cleanup.push(() => socket.destroy());
  return spoken;
}

describe("TLS", () => {
  test("bytes go both ways, large ones with a drain behind them", async () => {
    const { port, seen } = await echo({ tls: tlsRules });
    const peer = secure(port);
    const text = "x".repeat(3_000_000);
    peer.socket.write(text);
    await until(() => peer.text.length === text.length);
    expect(seen[0]?.drains).toBeGreaterThan(0);
    expect(seen[0]?.connection.remote).toMatch(/^127\.0\.0\.1:\d+$/);
    peer.socket.end();
    await until(() => seen[0]?.closes === 1);
  });

  test.each(["TLSv1", "TLSv1.1"] as const)("%s is refused", async (version) => {
    const { port, seen, refused } = await echo({ tls: tlsRules });
    const peer = secure(port, {
      ...{ minVersion: version, maxVersion: version, ciphers: "DEFAULT@SECLEVEL=0" },
    });
    await until(() => peer.closed && seen[0]?.closes === 1);
    expect(peer.error).toBeDefined();
    expect([seen[0]?.received.length, refused.length]).toEqual([0, 1]);
  });

  test("versionMin 1.3 refuses 1.2", async () => {
    const { port, refused } = await echo({ tls: { ...tlsRules, versionMin: "TLSv1.3" } });
    const peer = secure(port, { maxVersion: "TLSv1.2" });
    await until(() => peer.closed);
    expect(refused).toEqual([expect.stringContaining("TLS: ")]);
  });

  test("bytes that are no TLS end their connection, which is told once", async () => {
    const { port, seen } = await echo({ tls: tlsRules });
    const socket = net.connect(port, "127.0.0.1");
    socket.on("error", () => undefined).write("\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00");
    await until(() => seen[0]?.closes === 1);
    expect(seen[0]?.received.length).toBe(0);
  });

  test("a connection is known, and can be cut, before its handshake", async () => {
    const { port, seen } = await echo({ tls: tlsRules });
    const socket = net.connect(port, "127.0.0.1").on("error", () => undefined);
    await until(() => seen.length === 1);
    seen[0]?.connection.destroy();
    await until(() => seen[0]?.closes === 1 && socket.destroyed);
  });

  describe("client certificates", () => {
    const rules = (clientCertificate: TlsRules["clientCertificate"]): TlsRules => ({
      ...{ material: { ...server, ca: authority }, versionMin: "TLSv1.2", clientCertificate },
    });
    const said = async (rulesOf: TlsRules, pair: Pair | undefined) => {
      const { port, seen } = await echo({ tls: rulesOf });
      const peer = secure(port, pair ?? {});
      peer.socket.write("hello");
      await until(() => peer.closed || peer.text === "hello");
      await until(() => seen[0]?.closes === 1 || peer.text === "hello");
      return { text: peer.text, certificate: seen[0]?.connection.certificate };
    };

    test("required: one of ours tells the identity", async () => {
      const { certificate } = await said(rules("required"), alice);
      expect(certificate).toEqual({
        commonName: "alice",
        alternativeNames: ["alice.example"],
        fingerprint: expect.stringMatching(/^([0-9A-F]{2}:){31}[0-9A-F]{2}$/),
      });
    });

    test.each([
      ["none", undefined],
      ["one of strangers", mallory],
    ])("required: %s is refused", async (_name, pair) => {
      expect(await said(rules("required"), pair)).toEqual({ text: "", certificate: undefined });
    });

    test.each([
      ["none", undefined],
      ["one of strangers", mallory],
    ])("optional: %s is let in without an identity", async (_name, pair) => {
      const result = await said(rules("optional"), pair);
      expect(result).toEqual({ text: "hello", certificate: undefined });
    });

    test.each(["TLSv1.2", "TLSv1.3"] as const)(
      "%s: a session that is resumed ends with its certificate",
      async (maxVersion) => {
        const optional = await echo({ tls: rules("optional") });
        const required = await echo({ tls: rules("required") });
        const resume = async (port: number, session?: Buffer) => {
          const peer = secure(port, { ...alice, maxVersion, ...(session && { session }) });
          let ticket: Buffer | undefined;
          peer.socket.on("session", (given) => {
            ticket = given;
          });
          peer.socket.write("hello");
          const isGiven = (): boolean => ticket !== undefined || session !== undefined;
          await until(() => peer.closed || (peer.text === "hello" && isGiven()));
          return { ticket, text: peer.text, isReused: peer.socket.isSessionReused() };
        };
        const { ticket } = await resume(optional.port);
        const { ticket: other } = await resume(required.port);
        const known = await resume(optional.port, ticket);
        expect(known).toMatchObject({ isReused: true, text: "hello" });
        expect(optional.seen[1]?.connection.certificate?.commonName).toBe("alice");
        vi.spyOn(systemClock, "wallUs").mockReturnValue(Date.UTC(2200, 0) * 1000);
        expect((await resume(optional.port, ticket)).text).toBe("hello");
        expect(optional.seen[2]?.connection.certificate).toBeUndefined();
        expect((await resume(required.port, other)).text).toBe("");
        expect(required.refused).toEqual([expect.stringContaining("has expired")]);
      },
    );

    test("none: a certificate that nobody asked for tells nothing", async () => {
      expect((await said(rules("none"), alice)).certificate).toBeUndefined();
    });
  });

  test("R130: new handshakes use the new pair, old connections live on, a bad pair changes nothing", async () => {
    const { listener, port } = await echo({ tls: tlsRules });
    const serial = async (peer: Spoken) => {
      await until(() => peer.socket.authorized);
      return peer.socket.getPeerCertificate().serialNumber;
    };
    const old = secure(port);
    const before = await serial(old);
    listener.setTls?.({ ...renewed, ca: undefined });
    const after = await serial(secure(port));
    expect(after).not.toBe(before);
    for (const bad of [
      { cert: server.cert, key: renewed.key },
      { cert: "nonsense", key: server.key },
      { cert: server.cert, key: "" },
      { cert: server.cert.slice(0, 300), key: server.key },
    ]) {
      expect(() => listener.setTls?.({ ...bad, ca: undefined })).toThrow(
        expect.objectContaining({ code: "NETWORK_TLS_INVALID" }),
      );
    }
    expect(await serial(secure(port))).toBe(after);
    old.socket.write("still here");
    await until(() => old.text === "still here");
  });

  test("a pair that does not fit is refused at the start", async () => {
    const tlsOf = { ...tlsRules, material: { cert: server.cert, key: renewed.key, ca: undefined } };
    await expect(echo({ tls: tlsOf })).rejects.toMatchObject({ code: "NETWORK_TLS_INVALID" });
  });
});

const webSocketRules: WebSocketRules = {
  ...{ path: "/mqtt", origins: [], isOpen: false },
  ...{ messageBytesMax: 1_000_000, strangerBytesMax: 10_000 },
};

type PageOptions = { readonly path?: string; readonly origin?: string; readonly host?: string };

function webSocket(port: number, protocols: string[], options: PageOptions = {}) {
  const { path = "/mqtt", host, ...page } = options;
  const rest = { ...page, ...(host !== undefined && { headers: { host } }) };
  const socket = new WebSocket(`ws://127.0.0.1:${port}${path}`, protocols, rest);
  const spoken = { socket, bytes: Buffer.alloc(0), code: 0, error: "" };
  socket.on("message", (data: Buffer) => {
    spoken.bytes = Buffer.concat([spoken.bytes, data]);
  });
  socket.on("error", (error) => {
    spoken.error = error.message;
  });
  socket.on("close", (code) => {
    spoken.code = code;
  });
  cleanup.push(() => socket.terminate());
  return spoken;
}

describe("WebSocket", () => {
  test.each([
    [["mqtt"], "mqtt"],
    [["mqttv3.1"], "mqttv3.1"],
    [["mqttv3.1", "mqtt"], "mqtt"],
    [["chat", "mqtt"], "mqtt"],
  ])("R127: of %j it answers %s", async (offered, chosen) => {
    const { port } = await echo({ webSocket: webSocketRules });
    const peer = webSocket(port, offered);
    await until(() => peer.socket.readyState === WebSocket.OPEN);
    expect(peer.socket.protocol).toBe(chosen);
  });

  test.each([
    ["no subprotocol", [], {}, "400"],
    ["a strange subprotocol", ["chat"], {}, "400"],
    ["another path", ["mqtt"], { path: "/other" }, "404"],
    ["a page of another host", ["mqtt"], { origin: "http://evil.example" }, "403"],
    ["a page without an origin", ["mqtt"], { origin: "null" }, "403"],
  ] as const)("%s is refused with a status", async (_name, offered, options, status) => {
    const { port, seen, refused } = await echo({ webSocket: webSocketRules });
    const peer = webSocket(port, [...offered], options);
    await until(() => seen[0]?.closes === 1);
    expect(peer.error).toContain(status);
    expect(refused.length).toBe(1);
  });

  test("pages of the same host and of loopback may connect, others when they are listed", async () => {
    const own = await echo({ webSocket: webSocketRules });
    const listed = { ...webSocketRules, origins: ["https://app.example"] };
    const other = await echo({ webSocket: listed });
    const all = await echo({ webSocket: { ...webSocketRules, origins: ["*"] } });
    const ok = [
      webSocket(own.port, ["mqtt"], { origin: "http://localhost:3000" }),
      webSocket(own.port, ["mqtt"], { origin: "http://127.0.0.1" }),
      webSocket(other.port, ["mqtt"], { origin: "https://app.example" }),
      webSocket(all.port, ["mqtt"], { origin: "http://evil.example" }),
    ];
    const denied = webSocket(other.port, ["mqtt"], { origin: "http://localhost" });
    await until(() => ok.every(({ socket }) => socket.readyState === WebSocket.OPEN));
    await until(() => denied.error !== "");
    expect(denied.error).toContain("403");
  });

  test("where nobody needs credentials, a name that was pointed at loopback is no host of ours", async () => {
    const rebound = { origin: "http://evil.example", host: "evil.example" };
    const open = await echo({ webSocket: { ...webSocketRules, isOpen: true } });
    const closed = await echo({ webSocket: webSocketRules });
    const denied = webSocket(open.port, ["mqtt"], rebound);
    const ok = [
      webSocket(closed.port, ["mqtt"], rebound),
      webSocket(open.port, ["mqtt"], { origin: "http://127.0.0.2:8080", host: "127.0.0.2" }),
      webSocket(open.port, ["mqtt"], { origin: "http://[::1]", host: "[::1]:9001" }),
      webSocket(open.port, ["mqtt"], { origin: "http://localhost:8080", host: "localhost" }),
    ];
    await until(() => ok.every(({ socket }) => socket.readyState === WebSocket.OPEN));
    await until(() => denied.error !== "");
    expect(denied.error).toContain("403");
  });

  test("plain HTTP is told to upgrade", async () => {
    const { port } = await echo({ webSocket: webSocketRules });
    const status = await new Promise((resolve) => {
      http.get({ port, host: "127.0.0.1", path: "/mqtt" }, (response) => {
        response.resume();
        resolve(response.statusCode);
      });
    });
    expect(status).toBe(426);
  });

  test("bytes come whole however messages and frames are cut", async () => {
    const { port, seen } = await echo({ webSocket: webSocketRules });
    const peer = webSocket(port, ["mqtt"]);
    await until(() => peer.socket.readyState === WebSocket.OPEN);
    const bytes = Buffer.from(Array.from({ length: 700 }, (_, at) => at & 0xff));
    for (const byte of bytes.subarray(0, 50)) peer.socket.send(Buffer.from([byte]));
    peer.socket.send(bytes.subarray(50, 300), { fin: false });
    peer.socket.send(bytes.subarray(300, 301), { fin: false });
    peer.socket.send(bytes.subarray(301), { fin: true });
    await until(() => peer.bytes.length === bytes.length);
    expect(seen[0]?.received).toEqual(bytes);
    expect(peer.bytes).toEqual(bytes);
  });

  test("a text message closes the connection; nothing of it is taken", async () => {
    const { port, seen } = await echo({ webSocket: webSocketRules });
    const peer = webSocket(port, ["mqtt"]);
    await until(() => peer.socket.readyState === WebSocket.OPEN);
    peer.socket.send("hello");
    await until(() => peer.code !== 0 && seen[0]?.closes === 1);
    expect([peer.code, seen[0]?.received.length]).toEqual([1003, 0]);
  });

  test("a stranger's message that grows too large is cut; one who has logged in may send it", async () => {
    const { port, seen } = await echo({ webSocket: webSocketRules });
    const stranger = webSocket(port, ["mqtt"]);
    const friend = webSocket(port, ["mqtt"]);
    await until(() => friend.socket.readyState === WebSocket.OPEN);
    await until(() => stranger.socket.readyState === WebSocket.OPEN);
    friend.socket.send(Buffer.from("f"));
    await until(() => friend.bytes.length === 1);
    seen.find(({ received }) => received.length === 1)?.connection.admitted?.();
    stranger.socket.send(Buffer.alloc(20_000), { fin: false });
    friend.socket.send(Buffer.alloc(500_000));
    await until(() => stranger.code !== 0 && friend.bytes.length === 500_001);
    friend.socket.send(Buffer.alloc(1_000_001));
    await until(() => friend.code !== 0);
    expect(friend.code).toBe(1009);
  });

  test("a message in very many parts, and a flood of pings, end their connection", async () => {
    const { port, seen } = await echo({ webSocket: webSocketRules });
    const [parts, pings] = [webSocket(port, ["mqtt"]), webSocket(port, ["mqtt"])];
    for (const { socket } of [parts, pings]) {
      await until(() => socket.readyState === WebSocket.OPEN);
    }
    for (const { connection } of seen) connection.admitted?.();
    for (let n = 0; n < 20_000; n++) parts.socket.send(Buffer.from([n]), { fin: false });
    for (let n = 0; n < 1000; n++) pings.socket.ping();
    await until(() => parts.code !== 0 && pings.code !== 0);
    expect([parts.code, pings.code]).toEqual([1008, 1006]);
    await until(() => seen.every(({ closes, received }) => closes === 1 && received.length === 0));
  });

  test("pause holds bytes back; end says goodbye", async () => {
    const { port, seen } = await echo({ webSocket: webSocketRules });
    const peer = webSocket(port, ["mqtt"]);
    await until(() => peer.socket.readyState === WebSocket.OPEN);
    seen[0]?.connection.pause();
    peer.socket.send(Buffer.from("later"));
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(seen[0]?.received.length).toBe(0);
    seen[0]?.connection.resume();
    await until(() => peer.bytes.length === 5);
    seen[0]?.connection.end();
    await until(() => seen[0]?.closes === 1);
    expect(peer.code).toBe(1000);
  });

  test("WSS with a client certificate", async () => {
    const rules: TlsRules = {
      ...{ material: { ...server, ca: authority }, versionMin: "TLSv1.2" },
      clientCertificate: "required",
    };
    const { port, seen } = await echo({ tls: rules, webSocket: webSocketRules });
    const socket = new WebSocket(`wss://127.0.0.1:${port}/mqtt`, ["mqtt"], {
      ...{ ca: authority, ...alice },
    });
    cleanup.push(() => socket.terminate());
    await until(() => socket.readyState === WebSocket.OPEN);
    socket.send(Buffer.from("hello"));
    await until(() => seen[0]?.received.length === 5);
    expect(seen[0]?.connection.certificate?.commonName).toBe("alice");
    expect(seen[0]?.connection.remote).toMatch(/^127\.0\.0\.1:\d+$/);
  });
});

const upgradeRequest = [
  ...["GET /mqtt HTTP/1.1", "Host: localhost", "Connection: Upgrade", "Upgrade: websocket"],
  ...["Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="],
  ...["Sec-WebSocket-Protocol: mqtt", "", ""],
].join("\r\n");

/** A stream to the port that puts `head` before what is written first, in one segment. */
function joining(port: number, head: Buffer): Duplex {
  const socket = net.connect(port, "127.0.0.1").on("error", () => undefined);
  let first = [head];
  const joined = new Duplex({
    read: () => undefined,
    write: (bytes, _encoding, done) => {
      socket.write(Buffer.concat([...first, bytes]), done);
      first = [];
    },
  });
  socket.on("data", (bytes) => joined.push(bytes)).on("close", () => joined.destroy());
  return joined;
}

describe("R129: PROXY header", () => {
  const proxy = {
    trusts: (host: string) => host === "127.0.0.1",
    headerWaitMs: 200,
    waitingMax: 2,
  };
  const v1 = Buffer.from("PROXY TCP4 203.0.113.7 10.0.0.1 50312 1883\r\n");
  const v2 = proxyV2({ host: "203.0.113.8", port: 50_313 });

  function plain(port: number): { socket: net.Socket; text: string; closed: boolean } {
    const socket = net.connect(port, "127.0.0.1").on("error", () => undefined);
    const spoken = { socket, text: "", closed: false };
    socket.on("data", (bytes) => {
      spoken.text += bytes.toString("latin1");
    });
    socket.on("close", () => {
      spoken.closed = true;
    });
    cleanup.push(() => socket.destroy());
    return spoken;
  }

  test.each([
    ["version 1", v1, "203.0.113.7:50312"],
    ["version 2", v2, "203.0.113.8:50313"],
  ])("%s tells the address, whole or byte by byte", async (_name, header, remote) => {
    const { port, seen } = await echo({ proxy });
    const whole = plain(port);
    whole.socket.write(Buffer.concat([header, Buffer.from("hello")]));
    const slow = plain(port);
    slow.socket.setNoDelay(true);
    for (const byte of header) {
      slow.socket.write(Buffer.from([byte]));
      await new Promise((resolve) => setImmediate(resolve));
    }
    slow.socket.write("hello");
    await until(() => whole.text === "hello" && slow.text === "hello");
    expect(seen.map(({ connection }) => connection.remote)).toEqual([remote, remote]);
  });

  test("TLS and WebSocket begin behind it, in the same segment or later", async () => {
    const { port, seen } = await echo({ proxy, tls: tlsRules, webSocket: webSocketRules });
    const raw = net.connect(port, "127.0.0.1").on("error", () => undefined);
    raw.write(v2);
    const page = secure(port, { socket: raw, servername: "localhost" });
    page.socket.write(upgradeRequest);
    await until(() => page.text.includes("\r\n\r\n"));
    expect(page.text).toMatch(/^HTTP\/1\.1 101 /);
    expect(seen[0]?.connection.remote).toBe("203.0.113.8:50313");

    // In one segment with the first bytes of TLS, which are kept back here.
    const both = await echo({ proxy, tls: tlsRules });
    const direct = secure(both.port, { socket: joining(both.port, v1), servername: "localhost" });
    direct.socket.write("hello");
    await until(() => direct.text === "hello");
    expect(both.seen[0]?.connection.remote).toBe("203.0.113.7:50312");

    const ws = await echo({ proxy, webSocket: webSocketRules });
    const together = plain(ws.port);
    together.socket.write(Buffer.concat([v1, Buffer.from(upgradeRequest)]));
    await until(() => together.text.includes("\r\n\r\n"));
    expect(together.text).toMatch(/^HTTP\/1\.1 101 /);
    expect(ws.seen[0]?.connection.remote).toBe("203.0.113.7:50312");
  });

  test("a trusted peer without one, with a broken one or a slow one is refused", async () => {
    const { port, seen, refused } = await echo({ proxy });
    const peers = [plain(port), plain(port)];
    peers[0]?.socket.write("\x10\x0c\x00\x04MQTT");
    peers[1]?.socket.write("PROXY ");
    await until(() => peers.every(({ closed }) => closed));
    expect(refused.sort()).toEqual(["no PROXY header", "no PROXY header in time"]);
    expect(seen.length).toBe(0);
  });

  test("those that wait are bounded; one that goes frees its place", async () => {
    const { port, seen } = await echo({ proxy: { ...proxy, headerWaitMs: 60_000 } });
    const waiting = [plain(port), plain(port)];
    await until(() => waiting.every(({ socket }) => !socket.connecting));
    const third = plain(port);
    await until(() => third.closed);
    waiting[0]?.socket.destroy();
    let last = plain(port);
    await until(() => {
      if (last.closed) last = plain(port);
      if (!last.socket.connecting && last.socket.writable && last.text === "") {
        last.socket.write(Buffer.concat([v1, Buffer.from("x")]));
      }
      return last.text.startsWith("x");
    });
    expect(seen.length).toBeGreaterThan(0);
  });

  test("a header of a peer that is not trusted is the client's own bytes", async () => {
    const { port, seen } = await echo({ proxy: { ...proxy, trusts: () => false } });
    plain(port).socket.write(v1);
    await until(() => seen[0]?.received.length === v1.length);
    expect(seen[0]?.connection.remote).toMatch(/^127\.0\.0\.1:/);
  });
});
