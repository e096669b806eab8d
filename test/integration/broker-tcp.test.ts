// The broker on real sockets, real disk and LevelDB, in this process, spoken to by MQTT.js. The
// launched program has tests of its own; this one shows that the parts hold together without it.

import { join } from "node:path";
import mqtt, { type IClientOptions, type MqttClient } from "mqtt";
import { expect, test } from "vitest";
import {
  nodeDisk,
  nodeNetwork,
  silentLogger,
  systemClock,
  systemRandom,
} from "../../src/base/index.ts";
import { brokerSettingsDefault, createBroker } from "../../src/broker/index.ts";
import { createClassicDriver } from "../../src/kv/index.ts";
import { defaultLogSettings, openLog } from "../../src/log/index.ts";
import { createSessions, sessionSettingsDefault } from "../../src/session/index.ts";
import { openStore, storeSettingsDefault } from "../../src/store/index.ts";
import { withTemporaryFolder } from "../support/temporary-folder.ts";

type Running = { readonly port: number; close(): Promise<void> };

async function startBroker(folder: string): Promise<Running> {
  const clock = systemClock;
  const logger = silentLogger;
  const kv = createClassicDriver({ disk: nodeDisk });
  const log = await openLog(
    { ...defaultLogSettings, segmentBytes: 4 * 1024 * 1024 },
    { disk: nodeDisk, clock, random: systemRandom, logger },
    join(folder, "log"),
  );
  const dir = join(folder, "db");
  if (!(await nodeDisk.exists(dir))) await nodeDisk.makeDir(dir);
  const store = await openStore(
    { ...storeSettingsDefault, dir, quarantineDir: join(folder, "quarantine") },
    { disk: nodeDisk, kv, log, clock, logger },
  );
  const broker = createBroker(brokerSettingsDefault, {
    network: nodeNetwork,
    clock,
    random: systemRandom,
    logger,
    store,
    createSessions: (ports) =>
      createSessions(sessionSettingsDefault, { store, clock, logger, ...ports }),
  });
  await broker.load();
  await store.start();
  broker.start();
  const { address } = await broker.listen({ host: "127.0.0.1", port: 0 });
  return {
    port: "port" in address ? address.port : 0,
    close: async () => {
      await broker.close();
      await store.close();
      await log.close();
    },
  };
}

type Received = { readonly client: MqttClient; readonly got: string[] };

async function connect(port: number, options: IClientOptions): Promise<Received> {
  const got: string[] = [];
  const client = mqtt.connect(`mqtt://127.0.0.1:${port}`, {
    protocolVersion: 5,
    reconnectPeriod: 0,
    ...options,
  });
  client.on("message", (topic, payload, packet) => {
    got.push(`${topic} ${payload.length > 20 ? payload.length : payload} q${packet.qos}`);
  });
  await new Promise<void>((resolve, reject) => {
    client.once("connect", () => resolve());
    client.once("error", reject);
  });
  return { client, got };
}

async function until(done: () => boolean): Promise<void> {
  for (let round = 0; round < 500 && !done(); round++) {
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

test.each([4, 5] as const)(
  "MQTT.js, level %i: live and stored messages, retained, large ones, over a restart",
  (protocolVersion) =>
    withTemporaryFolder(async (folder) => {
      let broker = await startBroker(folder);
      const durable: IClientOptions = {
        protocolVersion,
        clientId: "s",
        clean: false,
        ...(protocolVersion === 5 && { properties: { sessionExpiryInterval: 3600 } }),
      };
      const p = await connect(broker.port, { protocolVersion, clientId: "p" });
      const live = await connect(broker.port, { protocolVersion, clientId: "live" });
      const s = await connect(broker.port, durable);
      await live.client.subscribeAsync("t/#", { qos: 2 });
      await s.client.subscribeAsync("t/#", { qos: 2 });
      for (const qos of [0, 1, 2] as const) await p.client.publishAsync("t/1", `q${qos}`, { qos });
      await p.client.publishAsync("t/big", Buffer.alloc(3_000_000), { qos: 1 });
      await until(() => live.got.length === 4 && s.got.length === 4);
      const wanted = ["t/1 q0 q0", "t/1 q1 q1", "t/1 q2 q2", "t/big 3000000 q1"];
      expect(live.got).toEqual(wanted);
      // QoS 0 is not stored: it may pass what is.
      expect([...s.got].sort()).toEqual(wanted);
      await s.client.endAsync();
      for (let n = 0; n < 300; n++) p.client.publish("t/n", `${n}`, { qos: 1 });
      await p.client.publishAsync("t/kept", "kept", { qos: 1, retain: true });
      await Promise.all([p.client.endAsync(), live.client.endAsync()]);
      await broker.close();

      broker = await startBroker(folder);
      const again = await connect(broker.port, durable);
      await until(() => again.got.length >= 301);
      expect(again.got).toEqual([
        ...Array.from({ length: 300 }, (_, n) => `t/n ${n} q1`),
        "t/kept kept q1",
      ]);
      const late = await connect(broker.port, { protocolVersion, clientId: "late" });
      await late.client.subscribeAsync("+/kept", { qos: 0 });
      await until(() => late.got.length > 0);
      expect(late.got).toEqual(["t/kept kept q0"]);
      await Promise.all([again.client.endAsync(), late.client.endAsync()]);
      await broker.close();
    }),
);
