// A feed for a fleet dashboard: where each vehicle is, from retained messages at the start, then live;
// one loop, as fast as the dashboard draws, with a place that is kept while the dashboard restarts.
import { createBroker } from "flagstone";
import mqtt from "mqtt";

const broker = await createBroker({ memory: true });
const drawn = new Map();

/** Draws until `count` positions were drawn. */
async function draw(count) {
  const feed = await broker.subscribe("fleet/+/position", { name: "dashboard", windowMax: 10 });
  let left = count;
  for await (const { topic, payload } of feed) {
    drawn.set(topic.split("/")[1], JSON.parse(payload));
    left--;
    if (left > 0) continue;
    // Drawn: it need not come again when the dashboard is back.
    feed.acknowledge();
    break;
  }
}

const vehicle = await mqtt.connectAsync(broker.url, { protocolVersion: 5 });
const move = (id, km) =>
  vehicle.publishAsync(`fleet/${id}/position`, JSON.stringify({ km }), { qos: 1, retain: true });

for (const id of ["bus-1", "bus-2", "tram-9"]) await move(id, 0);
await draw(3);
// The dashboard is away; what happens meanwhile waits for it in the store.
for (const km of [1, 2, 3]) await move("bus-1", km);
await draw(3);
await vehicle.endAsync();
console.log([...drawn].map(([id, { km }]) => `${id} at ${km} km`).join(", "));
await broker.close();
