// A test of a device program, in one process with its broker: the power of the broker fails in the
// middle, the clock is turned by hand, and no reading is lost.
import assert from "node:assert";
import { createBroker } from "flagstone";
import mqtt from "mqtt";

/** The program under test: sends readings, each until it is acknowledged. */
function startDevice(url) {
  const client = mqtt.connect(url, {
    ...{ protocolVersion: 5, clientId: "meter", clean: false, reconnectPeriod: 20 },
    properties: { sessionExpiryInterval: 3600 },
    will: { topic: "meter/state", payload: Buffer.from("lost"), qos: 1 },
  });
  client.on("error", () => undefined);
  return {
    send: (value) => client.publishAsync("meter/reading", `${value}`, { qos: 1 }),
    stop: () => client.endAsync(),
  };
}

const broker = await createBroker({ memory: true, clock: "manual" });
const office = () => broker.subscribe("meter/reading", { name: "office" });
await (await office()).close();

const device = startDevice(broker.url);
await device.send(1);
const underWay = [2, 3].map((value) => device.send(value));
await broker.crash();
await Promise.all(underWay);
await device.send(4);
// Half a day later the office reads its post.
await broker.clock.advance(12 * 3600 * 1000);

const seen = new Set();
for await (const { payload } of await office()) {
  seen.add(Number(payload));
  if (seen.size === 4) break;
}
assert.deepEqual([...seen].sort(), [1, 2, 3, 4]);
await device.stop();
console.log(`readings ${[...seen].sort().join(" ")} arrived, over a power cut and half a day`);
await broker.close();
