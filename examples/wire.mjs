// MQTT without a socket and without a clock of its own: a device and a server that is only this file,
// both on the protocol machines of `flagstone/mqtt`, over a line that loses its connection. What went
// over the line is decoded like a capture, in pieces as they come.
import {
  ChunkPool,
  ClientConnection,
  ClientSession,
  clientSettingsDefault,
  decodeContextDefault,
  decodePacket,
  OutputBuffer,
  PacketFramer,
  ServerConnection,
  serverConnectionSettingsDefault,
} from "flagstone/mqtt";

const pool = new ChunkPool();
let nowMs = 0;

/** Prints each packet of a stream, however it is cut. */
function decoder(arrow, sender) {
  const context = { ...decodeContextDefault, sender };
  const framer = new PacketFramer(0x0fff_ffff, {
    onHeader: () => undefined,
    onFault: (error) => console.log(`${arrow} ${error.code}`),
    onFrame: (bytes, start, bodyStart, end) => {
      const { type, topic, payload, packetId, dup } = decodePacket(
        ...[bytes, start, bodyStart, end, context],
      );
      const words = [packetId && `#${packetId}`, dup && "again", topic, payload];
      console.log([arrow, type, ...words.filter((word) => word)].join(" "));
      return true;
    },
  });
  return (bytes) => framer.push(bytes);
}

/** Both ends of one connection. `carry` moves bytes until there are none; the line may be cut. */
function connect(session, deviceEvents, serverEvents) {
  const up = new OutputBuffer(pool, () => undefined);
  const down = new OutputBuffer(pool, () => undefined);
  const parts = { settings: clientSettingsDefault, session, output: up };
  const hello = { type: "connect", level: 5, bridge: false, clientId: "meter", cleanStart: false };
  const server = new ServerConnection(serverConnectionSettingsDefault, serverEvents, down, nowMs);
  const device = new ClientConnection(
    { ...parts, events: deviceEvents },
    { ...hello, keepAliveS: 60, properties: { sessionExpiryS: 3600 } },
    nowMs,
  );
  const seen = { up: decoder("->", "client"), down: decoder("<-", "server") };
  const move = (output, see, to) =>
    output.drain((bytes, chunk) => {
      // Three bytes at a time: nobody may mind.
      for (let at = 0; at < bytes.length; at += 3) {
        see(bytes.subarray(at, at + 3));
        to.receive(bytes.subarray(at, at + 3), nowMs);
      }
      pool.release(chunk);
    });
  const carry = () => {
    while (up.pendingBytes + down.pendingBytes > 0) {
      move(up, seen.up, server);
      move(down, seen.down, device);
    }
  };
  return { device, server, up, carry };
}

const session = new ClientSession();
const taken = [];
let isKnown = false;
const ignore = () => undefined;
const deviceEvents = {
  onConnack: ignore,
  onPublish: ignore,
  onPublished: (packetId) => console.log(`the device is done with #${packetId}`),
  onEnd: ({ cause }) => console.log(`the device's connection ended: ${cause}`),
};
const serverEvents = {
  onConnect: () => {
    line.server.acceptConnect({ sessionPresent: isKnown, properties: {} }, nowMs);
    isKnown = true;
  },
  onPublish: ({ topic, payload }, token) => {
    taken.push(`${topic} ${payload}`);
    line.server.completeAck(token);
  },
  onEnd: ({ cause }) => console.log(`the server's connection ended: ${cause}`),
};

let line = connect(session, deviceEvents, serverEvents);
line.carry();
const publish = (text) =>
  line.device.publish({ topic: "meter/1", payload: Buffer.from(text), qos: 1, retain: false });
publish("20.5");
line.carry();

publish("21.0");
line.up.drain((_bytes, chunk) => pool.release(chunk)); // lost on its way
nowMs += 90_000;
line.server.tick(nowMs); // heard nothing for one and a half keep alives
line.device.transportClosed();

line = connect(session, deviceEvents, serverEvents);
line.carry();
console.log(`taken: ${taken.join(", ")}`);
