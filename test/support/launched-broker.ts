// A launched broker with its data directory, for conversations in raw bytes: it can be stopped or
// killed and started again on the same data and port, and it closes the clients that a test opened.

import { mkdtemp, realpath, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ConnectionOptions } from "node:tls";
import type { IConnectPacket } from "mqtt-packet";
import { afterAll, afterEach, beforeAll } from "vitest";
import { type BrokerProcess, startBroker } from "./broker-process.ts";
import { type PacketOf, type ProtocolLevel, RawClient } from "./raw-client.ts";

export type End = "stop" | "kill";

export type ClientOptions = {
  readonly level?: ProtocolLevel;
  /** Default true. */
  readonly clean?: boolean;
  /** MQTT 5; default an hour for a client that is not clean. */
  readonly expiryS?: number;
  readonly receiveMaximum?: number;
  readonly connect?: Partial<IConnectPacket>;
  /** Default: straight to the broker. */
  readonly port?: number;
};

export type Connected = { readonly client: RawClient; readonly connack: PacketOf<"connack"> };

export class LaunchedBroker {
  readonly dataDir: string;
  readonly #args: readonly string[];
  readonly #env: Readonly<Record<string, string>>;
  readonly #clients = new Set<RawClient>();
  #process: BrokerProcess | undefined;
  #port = 0;

  private constructor(
    dataDir: string,
    args: readonly string[],
    env: Readonly<Record<string, string>>,
  ) {
    this.dataDir = dataDir;
    this.#args = args;
    this.#env = env;
  }

  static async open(
    args: readonly string[] = [],
    env: Readonly<Record<string, string>> = {},
  ): Promise<LaunchedBroker> {
    const dataDir = await realpath(await mkdtemp(join(tmpdir(), "flagstone-test-")));
    const broker = new LaunchedBroker(dataDir, args, env);
    await broker.start();
    return broker;
  }

  get process(): BrokerProcess {
    if (this.#process === undefined) throw new Error("the broker does not run");
    return this.#process;
  }

  get port(): number {
    return this.#port;
  }

  async start(): Promise<void> {
    this.#process = await startBroker({
      dataDir: this.dataDir,
      port: this.#port,
      args: this.#args,
      env: this.#env,
      readyWithinMs: 60_000,
    });
    this.#port = this.#process.port;
  }

  async end(how: End): Promise<void> {
    if (how === "stop") await this.process.stop(60_000);
    else await this.process.kill();
    this.#process = undefined;
  }

  /** Ends it in one of two ways and starts it again, on the same port. */
  async restart(how: End): Promise<void> {
    await this.end(how);
    await this.start();
  }

  /** A transport without CONNECT. */
  async raw(level: ProtocolLevel = 5, port = this.#port): Promise<RawClient> {
    const client = await RawClient.open(port, level);
    this.#clients.add(client);
    return client;
  }

  /** The same over TLS, for a broker whose listener speaks it. */
  async rawTls(options: ConnectionOptions, level: ProtocolLevel = 5): Promise<RawClient> {
    const client = await RawClient.openTls({ port: this.#port, ...options }, level);
    this.#clients.add(client);
    return client;
  }

  /** Connects; resolves with client and CONNACK, which must say success. */
  async connect(clientId: string, options: ClientOptions = {}): Promise<Connected> {
    const { level = 5, clean = true, receiveMaximum } = options;
    const client = await this.raw(level, options.port);
    const sessionExpiryInterval = options.expiryS ?? (clean ? 0 : 3600);
    const properties = {
      sessionExpiryInterval,
      ...(receiveMaximum !== undefined && { receiveMaximum }),
    };
    const connack = await client.connect({
      clientId,
      clean,
      ...(level === 5 && { properties }),
      ...options.connect,
    });
    const code = level === 5 ? connack.reasonCode : connack.returnCode;
    if (code !== 0) throw new Error(`${clientId} was refused with ${code}`);
    return { client, connack };
  }

  /** A durable session's client, which keeps what it had. */
  resume(clientId: string, options: ClientOptions = {}): Promise<Connected> {
    return this.connect(clientId, { clean: false, ...options });
  }

  async closeClients(): Promise<void> {
    const open = [...this.#clients];
    this.#clients.clear();
    await Promise.all(open.map((client) => client.close()));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.closeClients();
    await this.#process?.kill();
    if (process.env.FLAGSTONE_KEEP === "1") console.error(`kept: ${this.dataDir}`);
    else await rm(this.dataDir, { recursive: true, force: true });
  }
}

/** One broker for all tests of a file; clients are closed behind each test. */
export function sharedBroker(args: readonly string[] = []): () => LaunchedBroker {
  let broker: LaunchedBroker | undefined;
  beforeAll(async () => {
    broker = await LaunchedBroker.open(args);
  });
  afterEach(async () => {
    await broker?.closeClients();
  });
  afterAll(async () => {
    await broker?.[Symbol.asyncDispose]();
  });
  return () => {
    if (broker === undefined) throw new Error("the broker has not started");
    return broker;
  };
}
