// Starts the broker on a damaged data directory and judges what became of it: it must start, and every
// acked message must arrive at a durable session, or be told to it.

import type { BrokerProcess } from "../support/broker-process.ts";
import { connect, start } from "./damage-base.ts";

export type Verdict = {
  readonly isGood: boolean;
  readonly arrived: number;
  readonly lost: number;
  /** What the session was told to have missed at most. */
  readonly missed: number;
  /** Events of the log that speak of damage. */
  readonly events: readonly string[];
  /** Why it is not good. */
  readonly fault: string | undefined;
};

type Event = { readonly event: string; readonly [field: string]: unknown };

const endPayload = "end";
const arriveWithinMs = 20_000;

export async function judge(dataDir: string, acked: readonly string[]): Promise<Verdict> {
  let broker: BrokerProcess;
  try {
    broker = await start(dataDir);
  } catch (error) {
    return failed(`no start: ${String(error).split("\n").slice(0, 3).join(" | ")}`, "");
  }
  try {
    const got = await receive(broker.port);
    await broker.stop();
    const first = judgeGot(got, acked, broker.output());
    if (first.fault !== undefined || first.events.length === 0) return first;
    return (await startsAgain(dataDir)) ?? first;
  } catch (error) {
    return failed(String(error), broker.output());
  } finally {
    await broker.kill();
  }
}

type Got = {
  readonly sessionPresent: boolean;
  readonly payloads: readonly string[];
  readonly repeats: number;
};

async function receive(port: number): Promise<Got> {
  const payloads = new Set<string>();
  let repeats = 0;
  let hasEnded = (): void => undefined;
  const ended = new Promise<void>((resolve) => {
    hasEnded = resolve;
  });
  const keeper = await connect(port, "keeper", ({ payload, retain, dup }) => {
    const text = payload.toString().split(" ")[0] as string;
    if (text === endPayload) return hasEnded();
    if (retain) return;
    if (payloads.has(text) && !dup) repeats++;
    payloads.add(text);
  });
  if (!keeper.sessionPresent) await keeper.client.subscribeAsync("#", { qos: 2 });
  // At QoS 2, like the others: MQTT.js hands such a message on at its PUBREL.
  const publisher = await connect(port, "publisher");
  await publisher.client.publishAsync("t/1/a", endPayload, { qos: 2 });
  await publisher.client.endAsync();
  const late = new Promise<never>((_, reject) => {
    setTimeout(
      () => reject(new Error(`the last message did not come; ${payloads.size} did`)),
      arriveWithinMs,
    ).unref();
  });
  await Promise.race([ended, late]);
  await keeper.client.endAsync();
  const { sessionPresent } = keeper;
  return { sessionPresent, payloads: [...payloads], repeats };
}

function judgeGot(got: Got, acked: readonly string[], output: string): Verdict {
  const all = eventsOf(output);
  const there = new Set(got.payloads);
  const lost = acked.filter((payload) => !there.has(payload)).length;
  let missed = 0;
  for (const { event, clientId, count } of all) {
    if (event === "session.messages_missed" && clientId === "keeper") missed += Number(count);
  }
  const isStateTold =
    !got.sessionPresent ||
    all.some(({ event, isComplete }) => event === "store.map_mended" && isComplete === false);
  const events = [...new Set(all.filter(speaksOfDamage).map(({ event }) => event))];
  let fault: string | undefined;
  if (lost > missed && !isStateTold) fault = `${lost} lost, ${missed} told`;
  if (lost > 0 && events.length === 0) fault = `${lost} lost, and nothing in the log`;
  if (!got.sessionPresent && events.length === 0) fault = "the session is lost without a word";
  return { isGood: fault === undefined, arrived: there.size, lost, missed, events, fault };
}

async function startsAgain(dataDir: string): Promise<Verdict | undefined> {
  try {
    const broker = await start(dataDir);
    await broker.stop();
    return undefined;
  } catch (error) {
    return failed(`no second start: ${String(error).split("\n").slice(0, 3).join(" | ")}`, "");
  }
}

function speaksOfDamage({ event }: Event): boolean {
  return /mended|lost|damage|copy_|gap|quarantine|rebuilt|rot|given_up|unreadable|missing/.test(
    event,
  );
}

function eventsOf(output: string): Event[] {
  return output.split("\n").flatMap((line) => {
    if (!line.startsWith("{")) return [];
    return [JSON.parse(line) as Event];
  });
}

function failed(fault: string, output: string): Verdict {
  const events = eventsOf(output).map(({ event }) => event);
  return { isGood: false, arrived: 0, lost: 0, missed: 0, events, fault };
}
