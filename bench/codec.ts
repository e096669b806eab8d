// Rates of the codec and the connection core on one core, without sockets: one JSON line each.
// Figures are for comparing changes on one machine, never across machines.
//
//   npx rolldown bench/codec.ts -p node -o bench/out/codec.mjs && node bench/out/codec.mjs

import {
  ChunkPool,
  canonicalFrame,
  encodePacket,
  forwardPublish,
  type MqttVersion,
  OutputBuffer,
  PacketFramer,
  type Properties,
  PublishReader,
  ServerConnection,
  type ServerEvents,
  type StoredFrame,
  serverConnectionSettingsDefault,
  writeForward,
} from "../src/mqtt/index.ts";

const payload = Buffer.alloc(100, 0x61);
const readBytes = 64 * 1024;

function frameBytes(
  version: MqttVersion,
  qos: 0 | 1,
  topic: string,
  properties: Properties,
): Buffer {
  const packetId = qos === 0 ? 0 : 1;
  const base = { type: "publish", payload, dup: false, retain: false } as const;
  return encodePacket({ ...base, topic, qos, packetId, properties }, version);
}

/** One full read buffer of PUBLISHes. */
function chunkOf(version: MqttVersion, qos: 0 | 1, topics: number, properties: Properties): Buffer {
  const frames: Buffer[] = [];
  for (let size = 0, turn = 0; size < readBytes; turn++) {
    const frame = frameBytes(version, qos, `bench/topic/${turn % topics}`, properties);
    frames.push(frame);
    size += frame.length;
  }
  return Buffer.concat(frames);
}

function measure(name: string, run: () => number): void {
  const warmUpMs = 300;
  const runMs = 1000;
  let started = performance.now();
  while (performance.now() - started < warmUpMs) run();
  started = performance.now();
  let count = 0;
  while (performance.now() - started < runMs) count += run();
  const perSecond = Math.round(count / ((performance.now() - started) / 1000));
  console.log(JSON.stringify({ bench: "codec", name, perSecond }));
}

function parsing(
  version: MqttVersion,
  qos: 0 | 1,
  topics: number,
  properties: Properties = {},
): void {
  const context = {
    version,
    sender: "client",
    dupAnywhere: false,
    userPropertiesMax: 64,
    topicLevelsMax: 128,
    filtersMax: 1000,
    refuseControlCharacters: false,
  } as const;
  const reader = new PublishReader(context);
  let count = 0;
  const framer = new PacketFramer(1 << 20, {
    onFrame(bytes, start, bodyStart, end) {
      if (reader.read(bytes, start, bodyStart, end).payloadOffset > 0) count++;
      return true;
    },
    onHeader: () => undefined,
    onFault: (error) => {
      throw error;
    },
  });
  const chunk = chunkOf(version, qos, topics, properties);
  const what = Object.keys(properties).length > 0 ? " with properties" : "";
  measure(`parse PUBLISH v${version} q${qos} ${topics} topics${what}`, () => {
    count = 0;
    framer.push(chunk);
    return count;
  });
}

function through(version: MqttVersion, qos: 0 | 1): void {
  const output = new OutputBuffer(new ChunkPool(), () => undefined);
  let count = 0;
  const events: ServerEvents = {
    onConnect: () => connection.acceptConnect({ sessionPresent: false }, 0),
    onPublish: (_publish, token) => {
      count++;
      if (token > 0) connection.completeAck(token);
    },
    onPuback: () => undefined,
    onPubrec: () => undefined,
    onPubrel: () => undefined,
    onPubcomp: () => undefined,
    onSubscribe: () => undefined,
    onUnsubscribe: () => undefined,
    onAuth: () => undefined,
    onEnd: (end) => {
      throw new Error(end.cause);
    },
  };
  const connection = new ServerConnection(serverConnectionSettingsDefault, events, output, 0);
  const hello = { level: version, bridge: false, clientId: "c", cleanStart: true, keepAliveS: 0 };
  connection.receive(encodePacket({ type: "connect", ...hello, properties: {} }, version), 0);
  const chunk = chunkOf(version, qos, 1, {});
  measure(`PUBLISH through the core, acked, v${version} q${qos}`, () => {
    count = 0;
    connection.receive(chunk, 0);
    output.drain(() => undefined);
    return count;
  });
}

function storedOf(version: MqttVersion): StoredFrame {
  const bytes = frameBytes(version, 1, "bench/topic/1", {});
  const context = { userPropertiesMax: 64, topicLevelsMax: 128, filtersMax: 1 } as const;
  const strict = { sender: "client", dupAnywhere: false, refuseControlCharacters: false } as const;
  const reader = new PublishReader({ ...context, ...strict, version });
  return canonicalFrame(reader.read(bytes, 0, 2, bytes.length));
}

function forwarding(from: MqttVersion, to: MqttVersion, subscriptionIds?: readonly number[]): void {
  const stored = storedOf(from);
  const target = Buffer.alloc(1024);
  const options = { version: to, qos: 1, dup: false, retain: false, packetId: 7, subscriptionIds };
  const forward = { ...options, qos: 1 } as const;
  const bytes = forwardPublish(stored, forward).length;
  const what = subscriptionIds === undefined ? "" : " with identifier";
  measure(`forward v${from} to v${to}${what} (${bytes} B)`, () => {
    for (let turn = 0; turn < 1000; turn++) writeForward(stored, forward, target, 0);
    return 1000;
  });
}

parsing(4, 0, 1);
parsing(4, 1, 1);
parsing(4, 1, 1000);
parsing(5, 1, 1);
parsing(5, 1, 1, { messageExpiryS: 60, contentType: "text/plain", userProperties: [["a", "b"]] });
through(4, 0);
through(4, 1);
through(5, 1);
forwarding(4, 4);
forwarding(5, 4);
forwarding(5, 5, [1]);
