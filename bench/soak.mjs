// Mixed hostile and honest load for a long time: `npm run bench -- soak --minutes 60`.
//
// Honest pairs exchange numbered QoS 1 messages through durable sessions at a fixed rate; hostile
// clients do, ten times a second, one thing that clients should not. A window is a twelfth of the run;
// its line holds the latency of the honest, what was lost, and what the broker holds. The last line
// says whether the honest noticed: no loss, and the p99 of each window at most 1.5 times the first's.

import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import {
  decodeContextDefault,
  decodePacket,
  encodePacket,
  PacketFramer,
} from "../dist/mqtt/index.js";
import { brokerOf, startBroker } from "./support/brokers.mjs";

const { values } = parseArgs({
  options: {
    minutes: { type: "string", default: "60" },
    pairs: { type: "string", default: "10" },
    rate: { type: "string", default: "10" },
  },
});
const minutes = Number(values.minutes);
const pairs = Number(values.pairs);
/** Of each pair, messages a second. */
const rate = Number(values.rate);
const windows = 12;
const windowMs = (minutes * 60_000) / windows;
const hostileEveryMs = 100;
const hostileLifeMs = 5000;
/** Late messages of a window may come in the first seconds of the next. */
const graceMs = 5000;

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const draw = (limit) => Math.floor(Math.random() * limit);

class Client {
  constructor(port, version = 5) {
    this.version = version;
    this.onPacket = () => undefined;
    this.socket = connect({ port, host: "127.0.0.1", noDelay: true });
    this.closed = new Promise((resolve) => this.socket.once("close", resolve));
    this.socket.on("error", () => undefined);
    const context = { ...decodeContextDefault, sender: "server", version };
    const framer = new PacketFramer(1 << 28, {
      onFrame: (bytes, start, body, end) => {
        this.onPacket(decodePacket(bytes, start, body, end, context));
        return true;
      },
      onHeader: () => undefined,
      onFault: (error) => {
        throw error;
      },
    });
    this.socket.on("data", (bytes) => framer.push(bytes));
  }

  say(...packets) {
    this.bytes(Buffer.concat(packets.map((packet) => encodePacket(packet, this.version))));
    return this;
  }

  bytes(bytes) {
    if (!this.socket.destroyed) this.socket.write(bytes);
    return this;
  }

  end() {
    this.socket.destroy();
  }
}

const connecting = (clientId, more = {}) => ({
  type: "connect",
  level: 5,
  bridge: false,
  clientId,
  cleanStart: true,
  keepAliveS: 0,
  properties: {},
  ...more,
});
const publishing = (topic, payload, qos, packetId, retain = false) => ({
  ...{ type: "publish", topic, payload: Buffer.from(payload), qos, packetId, retain, dup: false },
  properties: {},
});
const subscribing = (filter, qos) => ({
  type: "subscribe",
  packetId: 1,
  filters: [
    { filter, options: { qos, noLocal: false, retainAsPublished: false, retainHandling: 0 } },
  ],
  properties: {},
});
const lasting = (sessionExpiryS) => ({ cleanStart: false, properties: { sessionExpiryS } });

/** A pair: what it sends carries the time, and is looked for until it has come. */
class Pair {
  constructor(port, number) {
    this.topic = `honest/${number}`;
    this.sent = 0;
    this.open = new Set();
    this.latencies = [];
    this.reader = new Client(port).say(
      connecting(`reader ${number}`, lasting(3600)),
      subscribing(this.topic, 1),
    );
    this.reader.onPacket = (packet) => {
      if (packet.type !== "publish") return;
      this.reader.say({ type: "puback", packetId: packet.packetId, reasonCode: 0, properties: {} });
      const [n, at] = packet.payload.toString().split(" ");
      if (this.open.delete(Number(n))) this.latencies.push(performance.now() - Number(at));
    };
    this.writer = new Client(port).say(connecting(`writer ${number}`));
  }

  publish() {
    this.sent++;
    this.open.add(this.sent);
    const text = `${this.sent} ${performance.now()}`;
    this.writer.say(publishing(this.topic, text, 1, (this.sent % 60_000) + 1));
  }
}

/** One hostile act; what it opens ends after a while at the latest. */
function act(port, n) {
  const client = new Client(port);
  client.onPacket = () => undefined;
  const id = `hostile ${draw(20)}`;
  const acts = [
    () => client.bytes(Buffer.from("GET / HTTP/1.1\r\n\r\n")),
    () => client.bytes(Buffer.from([0x10, 0xff, 0xff, 0xff, 0x7f])),
    () => client.bytes(encodePacket(connecting(id), 5).subarray(0, 5 + draw(8))),
    () => client.say(connecting(id)).bytes(Buffer.from([0x30, 0xff, 0xff, 0xff, 0x7f])),
    () => client.say(connecting(id)).bytes(Buffer.from([0x30 + draw(16), 3, 0, 1, 0x2b])),
    () => {
      const bytes = encodePacket(publishing("hostile/x", "x".repeat(draw(200)), 2, 1), 5);
      bytes[draw(bytes.length)] = draw(256);
      client.say(connecting(id)).bytes(bytes);
    },
    () => client.say(connecting(id, lasting(1 + draw(20))), subscribing("honest/#", 1)),
    () => {
      client.say(connecting(id, lasting(10)), subscribing("#", draw(2)));
      client.socket.pause();
    },
    () => {
      const many = Array.from({ length: 500 }, (_, at) => publishing("hostile/y", "y", 2, at + 1));
      client.say(connecting(id), ...many);
    },
    () => client.say(connecting(id), publishing(`hostile/r${draw(1000)}`, "kept", 1, 1, true)),
    () => client.say(connecting(id), publishing(`hostile/r${draw(1000)}`, "", 1, 1, true)),
    () => {
      const filters = Array.from({ length: 200 }, () => subscribing(`h/${draw(1e9)}/+`, 1));
      client.say(connecting(id), ...filters);
    },
    () => client.say(connecting(id, { will: { ...publishing(`will/${id}`, "gone", 1, 0) } })),
  ];
  acts[n % acts.length]();
  if (draw(2) === 0) setTimeout(() => client.end(), draw(200));
  else setTimeout(() => client.end(), hostileLifeMs);
}

function held(pid) {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  return {
    rssMib: Math.round(Number(/VmRSS:\s+(\d+)/.exec(status)[1]) / 1024),
    descriptors: readdirSync(`/proc/${pid}/fd`).length,
  };
}

const quantile = (sorted, share) =>
  sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
const round = (ms) => Math.round(ms * 100) / 100;

const dir = mkdtempSync(join(tmpdir(), "flagstone-soak-"));
const broker = await startBroker(brokerOf("flagstone"), { dir, core: undefined });
let isWorking = true;
try {
  const all = Array.from({ length: pairs }, (_, n) => new Pair(broker.port, n));
  await pause(500);
  const publish = setInterval(() => {
    for (const pair of all) pair.publish();
  }, 1000 / rate);
  let acts = 0;
  const hostile = setInterval(() => act(broker.port, acts++), hostileEveryMs);
  const p99s = [];
  for (let window = 1; window <= windows; window++) {
    await pause(windowMs);
    const latencies = all.flatMap((pair) => pair.latencies.splice(0)).sort((a, b) => a - b);
    p99s.push(quantile(latencies, 0.99));
    const line = {
      ...{ bench: "soak", window, ofMinutes: minutes / windows, messages: latencies.length, acts },
      ...{ p50Ms: round(quantile(latencies, 0.5)), p99Ms: round(p99s.at(-1)) },
      ...{ maxMs: round(latencies.at(-1)), ...held(broker.pid) },
    };
    console.log(JSON.stringify(line));
  }
  clearInterval(publish);
  clearInterval(hostile);
  await pause(graceMs);
  const lost = all.reduce((sum, pair) => sum + pair.open.size, 0);
  const ratio = round(Math.max(...p99s.slice(1)) / p99s[0]);
  isWorking = lost === 0 && ratio <= 1.5;
  console.log(JSON.stringify({ bench: "soak", minutes, lost, p99Ratio: ratio, isWorking }));
} finally {
  await broker.stop();
  rmSync(dir, { recursive: true, force: true });
}
process.exit(isWorking ? 0 : 1);
