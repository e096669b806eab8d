// A client that subscribes, leaves, and finds everything it missed when it is back.
import mqtt from "mqtt";

const url = process.argv[2] ?? "mqtt://127.0.0.1:1883";
const count = 500;
const stock = {
  protocolVersion: 5,
  clientId: "stock",
  clean: false,
  properties: { sessionExpiryInterval: 3600 },
};

const away = await mqtt.connectAsync(url, stock);
await away.subscribeAsync("shop/+/sold", { qos: 2 });
await away.endAsync();

const till = await mqtt.connectAsync(url, { protocolVersion: 5, clientId: "till" });
const numbers = Array.from({ length: count }, (_, number) => number);
await Promise.all(
  numbers.map((number) => till.publishAsync(`shop/${number % 3}/sold`, `${number}`, { qos: 2 })),
);
await till.endAsync();
console.log(`published ${count} messages at QoS 2 while "stock" was away`);

const back = mqtt.connect(url, stock);
const received = [];
await new Promise((resolve) => {
  back.on("message", (_topic, payload) => {
    if (received.push(Number(payload)) === count) resolve();
  });
});
const isSame = received.every((number, index) => number === numbers[index]);
console.log(`received ${received.length}, ${isSame ? "each once and in order" : "NOT AS SENT"}`);
await back.endAsync();
