// Worker of the soak: does, at a fixed pace, one thing after another that clients should not. What it
// opens ends after a while at the latest. It runs in a thread of its own, so that its work is not taken
// for the broker's.

import { parentPort, workerData } from "node:worker_threads";
import { encodePacket } from "../../dist/mqtt/index.js";
import { Client, connecting, lasting, publishing, subscribing } from "./mqtt-client.mjs";

const { port, everyMs } = workerData;
const lifeMs = 5000;
const draw = (limit) => Math.floor(Math.random() * limit);

const acts = [
  (client) => client.bytes(Buffer.from("GET / HTTP/1.1\r\n\r\n")),
  (client) => client.bytes(Buffer.from([0x10, 0xff, 0xff, 0xff, 0x7f])),
  (client, id) => client.bytes(encodePacket(connecting(id), 5).subarray(0, 5 + draw(8))),
  (client, id) => client.say(connecting(id)).bytes(Buffer.from([0x30, 0xff, 0xff, 0xff, 0x7f])),
  (client, id) => client.say(connecting(id)).bytes(Buffer.from([0x30 + draw(16), 3, 0, 1, 0x2b])),
  (client, id) => {
    const bytes = encodePacket(publishing("hostile/x", "x".repeat(draw(200)), 2, 1), 5);
    bytes[draw(bytes.length)] = draw(256);
    client.say(connecting(id)).bytes(bytes);
  },
  (client, id) => client.say(connecting(id, lasting(1 + draw(20))), subscribing("honest/#", 1)),
  (client, id) => {
    client.say(connecting(id, lasting(10)), subscribing("#", draw(2)));
    client.socket.pause();
  },
  (client, id) => {
    const many = Array.from({ length: 500 }, (_, at) => publishing("hostile/y", "y", 2, at + 1));
    client.say(connecting(id), ...many);
  },
  (client, id) => client.say(connecting(id), publishing(`hostile/r${draw(1000)}`, "x", 1, 1, true)),
  (client, id) => client.say(connecting(id), publishing(`hostile/r${draw(1000)}`, "", 1, 1, true)),
  (client, id) => {
    const filters = Array.from({ length: 200 }, () => subscribing(`h/${draw(1e9)}/+`, 1));
    client.say(connecting(id), ...filters);
  },
  (client, id) =>
    client.say(connecting(id, { will: { ...publishing(`will/${id}`, "gone", 1, 0) } })),
  // Shared groups whose members never ack, and go.
  (client, id) =>
    client.say(connecting(id, lasting(5)), subscribing(`$share/g${draw(3)}/hostile/#`, 1)),
  (client, id) => client.say(connecting(id), ...Array.from({ length: 200 }, () => connecting(id))),
];

let done = 0;
setInterval(() => {
  const client = new Client(port);
  acts[done % acts.length](client, `hostile ${draw(20)}`);
  setTimeout(() => client.end(), draw(2) === 0 ? draw(200) : lifeMs);
  done++;
  parentPort.postMessage(done);
}, everyMs);
