// A toy broker that keeps the launcher's contract, to test the test tools with: durable sessions,
// QoS 0 to 2 in both directions, levels 4 and 5, one journal that is replayed at start. It is slow,
// holds everything in memory and never forgets; nothing but tests may use it.
//
// Everything it promises is a line of the journal, synced before the packet that promises it leaves.
// TOY_FAULT plants a fault for the tools to find: ack-early (acks before the sync), ack-unwritten
// (acks before the write), no-dup (resends without DUP), twice (delivers QoS 2 again at resume),
// deaf (ignores SIGTERM), mute (is never ready).

import fs from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import mqttPacket from "mqtt-packet";

const args = process.argv.slice(2);
const option = (name) => args[args.indexOf(`--${name}`) + 1];
const fault = process.env.TOY_FAULT ?? "";
const startedMs = performance.now();

// --- state, changed only by events of the journal ---

const sessions = new Map(); // client -> {subs: Map, queue: [], inflight: Map, recorded: Set, nextId}
const sessionOf = (client) => sessions.get(client);

const matches = (filter, topic) => {
  const [f, t] = [filter.split("/"), topic.split("/")];
  for (let level = 0; level < f.length; level++) {
    if (f[level] === "#") return true;
    if (t[level] === undefined || (f[level] !== "+" && f[level] !== t[level])) return false;
  }
  return f.length === t.length;
};

const reduce = {
  session: ({ c }) => {
    const empty = {
      subs: new Map(),
      queue: [],
      inflight: new Map(),
      recorded: new Set(),
      nextId: 1,
    };
    sessions.set(c, empty);
  },
  subscribe: ({ c, filter, qos }) => sessionOf(c).subs.set(filter, qos),
  publish: ({ c, mid, topic, payload, qos }) => {
    if (mid !== undefined) sessionOf(c).recorded.add(mid);
    for (const session of sessions.values()) {
      const granted = [...session.subs].filter(([filter]) => matches(filter, topic));
      if (granted.length === 0) continue;
      const level = Math.min(qos, Math.max(...granted.map(([, q]) => q)));
      session.queue.push({ topic, payload, qos: level });
    }
  },
  release: ({ c, mid }) => sessionOf(c).recorded.delete(mid),
  bind: ({ c, mid }) => {
    const session = sessionOf(c);
    session.inflight.set(mid, { ...session.queue.shift(), state: "sent", fresh: true });
    session.nextId = (mid % 65535) + 1;
  },
  received: ({ c, mid }) => {
    const entry = sessionOf(c).inflight.get(mid);
    if (entry !== undefined) entry.state = "received";
  },
  done: ({ c, mid }) => sessionOf(c).inflight.delete(mid),
};

// --- journal: one write and one sync at a time, effects behind it ---

const folder = option("data");
fs.mkdirSync(folder, { recursive: true });
const journalPath = join(folder, "journal");
if (fs.existsSync(journalPath)) {
  const text = fs.readFileSync(journalPath, "utf8");
  const whole = text.lastIndexOf("\n") + 1;
  for (const line of text.slice(0, whole).split("\n")) {
    const found = /^(\{.*\}) (\d+)$/.exec(line);
    if (found === null || Number(found[2]) !== found[1].length) break;
    const event = JSON.parse(found[1]);
    reduce[event.e](event);
  }
  for (const session of sessions.values())
    for (const e of session.inflight.values()) e.fresh = false;
}
const journal = fs.openSync(journalPath, "a");
fs.fdatasyncSync(journal);
const folderFd = fs.openSync(folder, "r");
fs.fsyncSync(folderFd);

let waiting = [];
let syncing = false;
const nothing = () => undefined;
const commit = (event, effect = nothing) => {
  reduce[event.e](event);
  waiting.push([event, effect]);
  if (fault === "ack-unwritten") effect();
  if (!syncing) flush();
};
const flush = () => {
  if (waiting.length === 0) return;
  const batch = waiting;
  waiting = [];
  syncing = true;
  const lines = batch.map(([event]) => JSON.stringify(event)).map((l) => `${l} ${l.length}\n`);
  const afterWrite = (error) => {
    if (error) throw error;
    const early = fault === "ack-early";
    if (early) for (const [, effect] of batch) effect();
    const synced = (failed) => {
      if (failed) throw failed;
      if (!early && fault !== "ack-unwritten") for (const [, effect] of batch) effect();
      // Only now: an effect that commits must not start a second flush beside this one.
      syncing = false;
      flush();
    };
    // Early acks get time to arrive, so that the fault does not hide behind a quick disk.
    if (early) setTimeout(() => fs.fdatasync(journal, synced), 5);
    else fs.fdatasync(journal, synced);
  };
  setImmediate(() => fs.write(journal, lines.join(""), afterWrite));
};

// --- connections ---

const online = new Map(); // client -> send
const windowMax = 50;

const deliver = (client) => {
  const session = sessionOf(client);
  const send = online.get(client);
  while (send !== undefined && session.queue.length > 0 && session.inflight.size < windowMax) {
    const { topic, payload, qos } = session.queue[0];
    if (qos === 0) {
      session.queue.shift();
      send({ cmd: "publish", topic, payload, qos, dup: false, retain: false });
      continue;
    }
    let mid = session.nextId;
    while (session.inflight.has(mid)) mid = (mid % 65535) + 1;
    commit({ e: "bind", c: client, mid }, () => {
      const entry = session.inflight.get(mid);
      const sendNow = online.get(client);
      // A resume in between may have sent it already.
      if (!entry?.fresh || sendNow === undefined) return;
      entry.fresh = false;
      sendNow({ cmd: "publish", topic, payload, qos, messageId: mid, dup: false, retain: false });
    });
  }
};

const resume = (client, send) => {
  for (const [mid, entry] of sessionOf(client).inflight) {
    const { topic, payload, qos, state } = entry;
    entry.fresh = false;
    if (state === "received" && fault !== "twice") {
      if (!entry.isUnwritten) send({ cmd: "pubrel", messageId: mid });
    } else {
      const dup = fault !== "no-dup";
      send({ cmd: "publish", topic, payload, qos, messageId: mid, dup, retain: false });
    }
  }
  deliver(client);
};

const handlers = {
  publish(client, packet, send) {
    const { qos, messageId, topic } = packet;
    const ack = () => {
      if (qos > 0) send({ cmd: qos === 1 ? "puback" : "pubrec", messageId });
      for (const other of online.keys()) deliver(other);
    };
    if (qos === 2 && sessionOf(client).recorded.has(messageId)) return ack();
    const mid = qos === 2 ? messageId : undefined;
    commit({ e: "publish", c: client, mid, topic, payload: packet.payload.toString(), qos }, ack);
  },
  pubrel(client, { messageId }, send) {
    commit({ e: "release", c: client, mid: messageId }, () => send({ cmd: "pubcomp", messageId }));
  },
  puback(client, { messageId }) {
    commit({ e: "done", c: client, mid: messageId });
    deliver(client);
  },
  pubrec(client, { messageId }, send) {
    // PUBREL only when that is on disk, also on a connection that took over in between.
    const entry = sessionOf(client).inflight.get(messageId);
    if (entry !== undefined) entry.isUnwritten = true;
    commit({ e: "received", c: client, mid: messageId }, () => {
      if (entry !== undefined) entry.isUnwritten = false;
      (online.get(client) ?? send)({ cmd: "pubrel", messageId });
    });
  },
  pubcomp(client, { messageId }) {
    commit({ e: "done", c: client, mid: messageId });
    deliver(client);
  },
  subscribe(client, packet, send) {
    const granted = packet.subscriptions.map(({ qos }) => qos);
    const last = packet.subscriptions.length - 1;
    packet.subscriptions.forEach(({ topic, qos }, index) => {
      const ack = () => send({ cmd: "suback", messageId: packet.messageId, granted });
      commit({ e: "subscribe", c: client, filter: topic, qos }, index === last ? ack : undefined);
    });
  },
  pingreq: (_client, _packet, send) => send({ cmd: "pingresp" }),
};

const server = createServer((socket) => {
  const parser = mqttPacket.parser();
  let client;
  let level = 4;
  const send = (packet) => socket.write(mqttPacket.generate(packet, { protocolVersion: level }));
  socket.on("data", (bytes) => parser.parse(bytes));
  socket.on("error", () => socket.destroy());
  socket.on("close", () => online.get(client) === send && online.delete(client));
  parser.on("error", () => socket.destroy());
  parser.on("packet", (packet) => {
    if (packet.cmd === "connect") {
      client = packet.clientId;
      level = packet.protocolVersion;
      const present = !packet.clean && sessions.has(client);
      const accept = () => {
        send({ cmd: "connack", returnCode: 0, reasonCode: 0, sessionPresent: present });
        online.set(client, send);
        resume(client, send);
      };
      if (present) accept();
      else commit({ e: "session", c: client }, accept);
    } else if (packet.cmd === "disconnect") socket.end();
    else handlers[packet.cmd]?.(client, packet, send);
  });
});

process.on("SIGTERM", () => {
  if (fault === "deaf") return;
  server.close();
  process.exit(0);
});
server.listen(Number(option("port")), "127.0.0.1", () => {
  if (fault === "mute") return;
  console.error("toy broker, for tests of test tools");
  console.log(`data: ${folder}`);
  const ms = Math.round(performance.now() - startedMs);
  console.log(`ready mqtt=127.0.0.1:${server.address().port} admin=off ms=${ms}`);
});
