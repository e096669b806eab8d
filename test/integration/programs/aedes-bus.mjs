// One of several Aedes over one Flagstone: `aedes-bus.mjs ID URL`, with its own store in ./ID. Says
// `ready PORT`.

import { createServer } from "node:net";
import { Aedes } from "aedes";
import { FlagstoneEmitter, openPersistence } from "flagstone/aedes";
import mqtt from "mqtt";

const [, , id, url] = process.argv;
const client = mqtt.connect(url, { protocolVersion: 5, reconnectPeriod: 50 });
client.on("error", () => undefined); // it connects again by itself
const mq = new FlagstoneEmitter(client, { id });
const persistence = await openPersistence({ dir: id });
const aedes = await Aedes.createBroker({ id, mq, persistence });
const server = createServer(aedes.handle).listen(0, "127.0.0.1");
server.on("listening", () => console.log(`ready ${server.address().port}`));
