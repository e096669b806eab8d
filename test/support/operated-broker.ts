// A launched broker with an admin port, its first key, and a command line that knows both.

import { join } from "node:path";
import mqtt, { type MqttClient } from "mqtt";
import { type AdminClient, createAdminClient } from "../../src/admin/client.ts";
import { type BrokerProcess, startBroker } from "./broker-process.ts";
import { runFlagstone } from "./command-line.ts";
import { withTemporaryFolder } from "./temporary-folder.ts";

export type Operated = {
  readonly broker: BrokerProcess;
  readonly admin: AdminClient;
  readonly url: string;
  readonly key: string;
  readonly folder: string;
  readonly dataDir: string;
  readonly run: (line: readonly string[]) => ReturnType<typeof runFlagstone>;
};

export const keyIn = (lines: readonly string[]): string | undefined =>
  /\bfs_\w{8}_[\w-]{43}/.exec(lines.join("\n"))?.[0];

export type OperatedOptions = {
  readonly folder: string;
  readonly dataDir?: string;
  /** Of a former start. */
  readonly key?: string;
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
};

/** The caller ends the broker. */
export async function startOperated(options: OperatedOptions): Promise<Operated> {
  const { folder, dataDir = join(folder, "data"), args = [], env = {} } = options;
  const broker = await startBroker({ dataDir, args: ["--admin-port", "0", ...args], env });
  const url = `http://127.0.0.1:${broker.adminPort}`;
  const key = options.key ?? (keyIn(broker.startLines) as string);
  const known = { FLAGSTONE_URL: url, FLAGSTONE_KEY: key, XDG_CONFIG_HOME: folder };
  const run: Operated["run"] = (line) => runFlagstone(line, { env: known });
  return { broker, url, key, folder, dataDir, run, admin: createAdminClient({ url, key }) };
}

export function operated(
  use: (at: Operated) => Promise<void>,
  args: readonly string[] = [],
): Promise<void> {
  return withTemporaryFolder(async (folder) => {
    const at = await startOperated({ folder, args });
    await using _broker = at.broker;
    await use(at);
  });
}

export function connect(port: number, clientId: string, options: object = {}): Promise<MqttClient> {
  return mqtt.connectAsync({ port, host: "127.0.0.1", protocolVersion: 5, clientId, ...options });
}

const durable = { clean: false, properties: { sessionExpiryInterval: 3600 } };

/** Durable sessions that are away, each with these filters. */
export async function leaveSessions(
  port: number,
  clientIds: readonly string[],
  filters: readonly string[],
): Promise<void> {
  for (let at = 0; at < clientIds.length; at += 25) {
    const some = clientIds.slice(at, at + 25).map(async (clientId) => {
      const client = await connect(port, clientId, durable);
      await client.subscribeAsync([...filters], { qos: 1 });
      await client.endAsync();
    });
    await Promise.all(some);
  }
}
