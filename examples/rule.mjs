// A rule: every alarm of a device becomes a row of a table, through a hook, before anybody else sees
// it. `database` has the face of `pg`'s Pool; put yours in its place.
import { createBroker } from "flagstone";
import mqtt from "mqtt";

const rows = [];
const database = {
  async query(text, values) {
    if (!text.startsWith("INSERT INTO alarms")) throw new Error(`unknown statement: ${text}`);
    rows.push(values);
    return { rowCount: 1 };
  },
};

const alarms = {
  // What the database does not take is refused: the device hears it and keeps its alarm.
  async authorizePublish(client, { topic, payload }) {
    const [, device, what] = topic.split("/");
    if (what !== "alarm") return;
    const { level } = JSON.parse(payload);
    if (level > 9) return false;
    const values = [client.clientId, device, level];
    await database.query("INSERT INTO alarms (client, device, level) VALUES ($1, $2, $3)", values);
  },
};

const broker = await createBroker({ memory: true, hooks: alarms });
const device = await mqtt.connectAsync(broker.url, { protocolVersion: 5, clientId: "press-7" });
const report = (topic, value) => device.publishAsync(topic, JSON.stringify(value), { qos: 1 });
await report("plant/7/temperature", 21);
await report("plant/7/alarm", { level: 3 });
await report("plant/7/alarm", { level: 12 }).catch((error) => {
  console.log(`refused with reason code 0x${error.code.toString(16)}`);
});
await device.endAsync();
console.log(`rows: ${JSON.stringify(rows)}`);
await broker.close();
