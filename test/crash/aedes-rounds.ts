// Rounds of kill -9 under an Aedes host: a publisher sends numbered messages to a durable subscriber
// that is away; the host dies at a drawn moment, and not before some were acknowledged; what was
// acknowledged is looked for after the last.
// The host program is given a folder and a port, and says `ready PORT`.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import mqtt from "mqtt";
import type { SeededRandom } from "../../src/base/index.ts";

export type RoundsResult = {
  readonly acked: number;
  readonly lost: number;
  /** Messages behind a later one of the same publisher and QoS; repeats do not count. */
  readonly outOfOrder: number;
  readonly repeated: number;
};

export type RoundsOptions = {
  readonly host: string;
  readonly cwd: string;
  readonly rounds: number;
  readonly random: SeededRandom;
  readonly qos: 1 | 2;
};

const away = { clientId: "away", clean: false, reconnectPeriod: 0 } as const;
/** Messages on their way at once. */
const window = 20;
/** Acknowledgements that each round waits for, however slow the machine is; at most so long. */
export const ackedPerRoundMin = 5;
const slowMsMax = 30_000;
/** No message for so long: that was all, as long as nothing acknowledged is missing. */
const quietMs = 3000;

type Host = { readonly child: ChildProcess; readonly url: string };

async function start({ host, cwd }: RoundsOptions): Promise<Host> {
  const child = spawn(process.execPath, [host, "data", "0"], {
    ...{ cwd, stdio: ["ignore", "pipe", "inherit"] },
  });
  const [line] = (await once(createInterface(child.stdout as never), "line")) as [string];
  return { child, url: `mqtt://127.0.0.1:${line.split(" ")[1]}` };
}

async function kill({ child }: Host): Promise<void> {
  child.kill("SIGKILL");
  await once(child, "exit");
}

export async function runRounds(options: RoundsOptions): Promise<RoundsResult> {
  const { rounds, random, qos } = options;
  const acked: number[] = [];
  let host = await start(options);
  const subscriber = await mqtt.connectAsync(host.url, away);
  await subscriber.subscribeAsync("n", { qos });
  await subscriber.endAsync();
  let next = 0;
  for (let round = 0; round < rounds; round++) {
    const publisher = await mqtt.connectAsync(host.url, { reconnectPeriod: 0 });
    publisher.on("error", () => undefined);
    const ackedBefore = acked.length;
    let isOver = false;
    const send = async (): Promise<void> => {
      while (!isOver) {
        const number = next++;
        try {
          await publisher.publishAsync("n", `${number}`, { qos });
          if (!isOver) acked.push(number);
        } catch {
          return; // its connection went with the host: not acknowledged
        }
      }
    };
    for (let count = 0; count < window; count++) void send();
    await sleep(random.between(20, 250));
    await until(() => acked.length - ackedBefore >= ackedPerRoundMin, slowMsMax);
    host.child.kill("SIGKILL");
    await once(host.child, "exit");
    isOver = true;
    publisher.end(true);
    host = await start(options);
  }
  const received = await collect(host, acked);
  await kill(host);
  return judge(acked, received);
}

/** All that the subscriber gets until it has been quiet for a while. */
async function collect(host: Host, acked: readonly number[]): Promise<number[]> {
  const received: number[] = [];
  const missing = new Set(acked);
  const client = mqtt.connect(host.url, away);
  client.on("error", () => undefined);
  let quietSince = Date.now();
  client.on("message", (_topic, payload) => {
    received.push(Number(payload));
    missing.delete(Number(payload));
    quietSince = Date.now();
  });
  const isQuiet = (): boolean =>
    Date.now() - quietSince > (missing.size === 0 ? quietMs : slowMsMax);
  await until(isQuiet, Number.POSITIVE_INFINITY);
  client.end(true);
  return received;
}

/** Looks again and again; gives up after `msMax`. */
async function until(isSo: () => boolean, msMax: number): Promise<void> {
  const end = Date.now() + msMax;
  while (!isSo() && Date.now() < end) await sleep(5);
}

function judge(acked: readonly number[], received: readonly number[]): RoundsResult {
  const seen = new Set<number>();
  let highest = -1;
  let outOfOrder = 0;
  let repeated = 0;
  for (const number of received) {
    if (seen.has(number)) {
      repeated++;
      continue;
    }
    seen.add(number);
    if (number < highest) outOfOrder++;
    highest = Math.max(highest, number);
  }
  const lost = acked.filter((number) => !seen.has(number)).length;
  return { acked: acked.length, lost, outOfOrder, repeated };
}
