// What an operator does to a broker while it is recorded: a database beside whose generations end, are
// packed anew when all in them has expired, and are dropped. What the oracle judges is owed as ever;
// nobody is owed anything of the database beside.

import { setTimeout as sleep } from "node:timers/promises";
import mqtt from "mqtt";
import type { BrokerProcess } from "../support/broker-process.ts";

const database = "scratch";
const messagesPerTurn = 20;
/** Longer than its messages live. */
const expiryMs = 1_200;

export class ImageUpkeep {
  #key: string | undefined;
  #isMade = false;
  #work: Promise<void> = Promise.resolve();

  /** One round of all of it, behind those that are under way. */
  turn(broker: BrokerProcess): void {
    this.#work = this.#work.then(() => this.#turn(broker));
  }

  /** Resolves when all rounds are over; rejects when one failed. */
  done(): Promise<void> {
    return this.#work;
  }

  async #turn(broker: BrokerProcess): Promise<void> {
    if (!this.#isMade) await this.#make(broker);
    const untilUs = Date.now() * 1_000 + 60_000_000;
    await this.#ask(broker, `databases/${database}/drop`, { untilUs });
    const publisher = await mqtt.connectAsync(`mqtt://127.0.0.1:${broker.port}`, {
      ...{ clientId: "scratch-writer", protocolVersion: 5, reconnectPeriod: 0 },
    });
    const properties = { messageExpiryInterval: 1 };
    for (let n = 0; n < messagesPerTurn; n++) {
      const payload = "x".repeat(300);
      await publisher.publishAsync(`${database}/${n % 3}`, payload, { qos: 1, properties });
    }
    await publisher.endAsync();
    await this.#ask(broker, `databases/${database}/rotate`);
    await sleep(expiryMs);
    await this.#repack(broker);
  }

  /** With a session that is away, so that its messages are worth keeping. */
  async #make(broker: BrokerProcess): Promise<void> {
    await this.#ask(broker, "databases", {
      ...{ name: database, shards: 1, topics: [`${database}/#`] },
    });
    const session = await mqtt.connectAsync(`mqtt://127.0.0.1:${broker.port}`, {
      ...{ clientId: "scratch-reader", clean: false, reconnectPeriod: 0 },
    });
    await session.subscribeAsync(`${database}/#`, { qos: 1 });
    await session.endAsync();
    this.#isMade = true;
  }

  async #repack(broker: BrokerProcess): Promise<void> {
    const task = await this.#ask(broker, "tasks", { kind: "repack", database });
    for (;;) {
      const { state } = await this.#ask(broker, `tasks/${task.id}`, undefined, "GET");
      if (state === "done") return;
      if (state !== "running" && state !== "waiting") throw new Error(`the task is ${state}`);
      await sleep(20);
    }
  }

  async #ask(
    broker: BrokerProcess,
    path: string,
    body?: unknown,
    method = "POST",
  ): Promise<{ id?: string; state?: string }> {
    this.#key ??= /\bfs_\w{8}_[\w-]{43}/.exec(broker.startLines.join("\n"))?.[0];
    const response = await fetch(`http://127.0.0.1:${broker.adminPort}/api/v1/${path}`, {
      method,
      headers: { authorization: `Bearer ${this.#key}`, "content-type": "application/json" },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
    return (await response.json()) as { id?: string; state?: string };
  }
}
