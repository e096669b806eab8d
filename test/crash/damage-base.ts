// Data directories for the damage suite: one that a broker was stopped on, one that it was killed on,
// and an older copy of the same, with every kind of file in them.

import { cpSync } from "node:fs";
import { join } from "node:path";
import mqtt, { type IPublishPacket, type MqttClient } from "mqtt";
import { type BrokerProcess, startBroker } from "../support/broker-process.ts";

// One shard each: a case is a start, and starts have to be quick. Small segments: the log goes on, so
// that not everything is in it.
export const damageArgs = [
  ...["--set", "databases.messages.shards=1", "--set", "databases.state.shards=1"],
  ...["--set", "log.segmentBytes=64KiB", "--set", "store.checkpointAge=1s"],
];
const env = { FLAGSTONE_TEST_SIGNALS: "1" };
const topics = ["t/1/a", "t/2/b", "u", "deep/er/topic", "t/3/c"];
const padding = "x".repeat(300);

export type DamageBase = {
  /** Ended by SIGTERM: a checkpoint covers everything. */
  readonly stopped: string;
  /** Ended by SIGKILL: the log holds what no checkpoint covers. */
  readonly killed: string;
  /** Of the same directory, stopped earlier. */
  readonly older: string;
  /** Payloads acked by the end of each. */
  readonly acked: { readonly stopped: readonly string[]; readonly killed: readonly string[] };
};

export async function makeBase(scratch: string): Promise<DamageBase> {
  const data = join(scratch, "data");
  const [stopped, killed, older] = ["stopped", "killed", "older"].map((name) =>
    join(scratch, name),
  );
  const acked: string[] = [];
  const run = async (
    count: number,
    then: (broker: BrokerProcess) => Promise<unknown>,
  ): Promise<void> => {
    const broker = await start(data);
    if (acked.length === 0) await subscribe(broker.port);
    await publish(broker.port, count, acked);
    await then(broker);
  };
  const stop = (broker: BrokerProcess) => broker.stop();
  const rotateAndStop = async (broker: BrokerProcess): Promise<void> => {
    process.kill(broker.pid, "SIGUSR2");
    await untilOutput(broker, "node.test_rotated");
    await broker.stop();
  };
  await run(100, rotateAndStop);
  await run(150, rotateAndStop);
  await run(100, stop);
  cpSync(data, older as string, { recursive: true });
  await run(100, stop);
  await run(100, stop);
  cpSync(data, stopped as string, { recursive: true });
  const ackedStopped = [...acked];
  await run(100, (broker) => broker.kill());
  cpSync(data, killed as string, { recursive: true });
  return {
    ...{ stopped: stopped as string, killed: killed as string, older: older as string },
    acked: { stopped: ackedStopped, killed: acked },
  };
}

export function start(dataDir: string): Promise<BrokerProcess> {
  return startBroker({ dataDir, args: damageArgs, env, readyWithinMs: 60_000 });
}

async function subscribe(port: number): Promise<void> {
  for (const clientId of ["keeper", "other"]) {
    const { client } = await connect(port, clientId);
    await client.subscribeAsync("#", { qos: 2 });
    await client.subscribeAsync(`only/${clientId}`, { qos: 1 });
    await client.endAsync();
  }
}

/** Alternating at QoS 1 and 2; some retained. */
async function publish(port: number, count: number, acked: string[]): Promise<void> {
  const { client } = await connect(port, "publisher");
  const first = acked.length;
  await Promise.all(
    Array.from({ length: count }, async (_, at) => {
      const number = first + at;
      const payload = `${number} ${padding}`;
      const qos = number % 2 === 0 ? 1 : 2;
      await client.publishAsync(topics[number % topics.length] as string, payload, { qos });
      acked.push(String(number));
    }),
  );
  await client.publishAsync("kept/value", `${count} of ${first}`, { qos: 1, retain: true });
  await client.endAsync();
}

export type Connection = { readonly client: MqttClient; readonly sessionPresent: boolean };

export async function connect(
  port: number,
  clientId: string,
  onMessage: (packet: IPublishPacket) => void = () => undefined,
): Promise<Connection> {
  const client = mqtt.connect({
    ...{ host: "127.0.0.1", port, clientId, clean: false, protocolVersion: 5 as const },
    ...{ reconnectPeriod: 0, connectTimeout: 20_000, manualConnect: true },
    properties: { sessionExpiryInterval: 86_400 },
  });
  client.on("message", (_topic, _payload, packet) => onMessage(packet));
  const connected = new Promise<boolean>((resolve, reject) => {
    client.once("connect", (connack) => resolve(connack.sessionPresent));
    client.once("error", reject);
    client.once("close", () => reject(new Error(`${clientId}: the connection was closed`)));
  });
  client.connect();
  const sessionPresent = await connected;
  return { client, sessionPresent };
}

async function untilOutput(broker: BrokerProcess, text: string): Promise<void> {
  while (!broker.output().includes(text)) {
    await new Promise((resolve) => {
      setTimeout(resolve, 20);
    });
  }
}
