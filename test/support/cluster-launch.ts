// A member of a cluster, by the launcher, as its operator runs it.

import { type ChildProcess, spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { launcherPath } from "./broker-process.ts";

const readyMs = 120_000;

export class LaunchedMember {
  readonly #child: ChildProcess;
  readonly #key: string;
  #told = "";

  /** The key of an earlier start of the node: it is printed once. */
  constructor(child: ChildProcess, key = "") {
    this.#child = child;
    this.#key = key;
    const take = (text: Buffer): void => {
      this.#told += text.toString();
    };
    child.stdout?.on("data", take);
    child.stderr?.on("data", take);
  }

  /** Resolves when `isDone`; else fails with all that the node said. */
  async until(isDone: () => Promise<boolean> | boolean): Promise<void> {
    const endMs = performance.now() + readyMs;
    while (!(await isDone())) {
      if (performance.now() > endMs || this.#child.exitCode !== null) throw new Error(this.#told);
      await sleep(200);
    }
  }

  get key(): string {
    return /fs_\S+/.exec(this.#told)?.[0] ?? this.#key;
  }

  ready(): Promise<void> {
    return this.until(() => this.#adminPort !== undefined);
  }

  /** Of the HTTP API; what is refused throws its status and sentence. */
  // biome-ignore lint/suspicious/noExplicitAny: answers are looked into by tests.
  async call(method: string, path: string, body?: object): Promise<any> {
    const response = await fetch(`http://127.0.0.1:${this.#adminPort}/api/v1${path}`, {
      method,
      headers: { authorization: `Bearer ${this.key}`, "content-type": "application/json" },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const answer = (await response.json()) as { detail?: string };
    if (!response.ok) throw new Error(`${response.status}: ${answer.detail}`);
    return answer;
  }

  async kill(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const closed = new Promise((resolve) => this.#child.once("close", resolve));
    this.#child.kill("SIGKILL");
    await closed;
  }

  get #adminPort(): number | undefined {
    const port = /^ready mqtt=\S+ admin=\S+:(\d+) /m.exec(this.#told)?.[1];
    return port === undefined ? undefined : Number(port);
  }

  /** Of its MQTT listener. REQUIRES: it is ready, and no store node. */
  get mqttPort(): number {
    return Number(/^ready mqtt=\S+:(\d+) /m.exec(this.#told)?.[1]);
  }
}

/** Resolves when the node is ready. `cluster` are its keys, `others` those beside it. */
export async function spawnNode(
  folder: string,
  name: string,
  cluster: object,
  key = "",
  others: object = {},
): Promise<LaunchedMember> {
  const path = join(folder, `${name}.json.yaml`);
  const settings = { data: { dir: join(folder, name) }, cluster, admin: { port: 0 }, ...others };
  writeFileSync(path, JSON.stringify(settings));
  const argv = [launcherPath(), "start", "--config", path];
  const member = new LaunchedMember(spawn(process.execPath, argv, { cwd: folder }), key);
  await member.ready();
  return member;
}
