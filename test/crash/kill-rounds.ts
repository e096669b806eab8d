// Rounds of load and kill -9 on one data directory: after every restart all sessions come back, what
// was acked must be delivered, and the oracle must be content. The caller says when to kill; by
// default somewhere between the first and the last wanted ack.

import { SeededRandom } from "../../src/base/index.ts";
import type { BrokerProcess } from "../support/broker-process.ts";
import { DeliveryOracle, formatReport, type OracleReport } from "../support/oracle.ts";
import {
  connectSubscribers,
  createTraffic,
  type Load,
  openTraffic,
  startLoad,
  startWandering,
  waitDelivered,
} from "./traffic.ts";

export type KillOptions = {
  /** Starts the broker on the data directory; port 0 the first time, then always the same. */
  readonly start: (port: number) => Promise<BrokerProcess>;
  readonly rounds: number;
  readonly ackedPerRound: number;
  readonly seed: number | string;
  /** Resolves at the moment to kill in this round. */
  readonly aim?: (round: number, load: Load, broker: BrokerProcess) => Promise<void>;
  /** How old before the kill a QoS 1 delivery may be that is repeated. Default 1.25 s. */
  readonly repeatAgeMsMax?: number;
  readonly deliveredWithinMs?: number;
};

export type KillReport = OracleReport & { readonly kills: number; readonly restartMs: number[] };

/** Throws with the round, the seed and what is wrong; returns the counts when all is well. */
export async function runKillRounds(options: KillOptions): Promise<KillReport> {
  const random = new SeededRandom(options.seed);
  const oracle = new DeliveryOracle();
  const traffic = createTraffic(oracle);
  const names = traffic.subscribers.map(({ client }) => client.clientId);
  const everyone = [...traffic.publishers, ...traffic.subscribers.map(({ client }) => client)];
  const restartMs: number[] = [];
  let broker = await options.start(0);
  const { port } = broker;
  let report = oracle.check();
  try {
    await openTraffic(traffic, port);
    for (let round = 1; round <= options.rounds; round++) {
      const load = startLoad(traffic, random.next32());
      const wandering = startWandering(traffic, port);
      const enough = load.untilAcked(options.ackedPerRound);
      const aim = options.aim?.(round, load, broker) ?? enough;
      await Promise.race([Promise.all([enough, aim]), died(broker)]);
      const killedAtNs = process.hrtime.bigint();
      await broker.kill();
      load.halt();
      await Promise.all([wandering.stop(), ...everyone.map((client) => client.waitClosed())]);
      broker = await options.start(port);
      restartMs.push(broker.readyMs);
      await connectSubscribers(traffic, port);
      for (const publisher of traffic.publishers) await publisher.connect(port);
      await load.finish();
      const delivered = waitDelivered(oracle, names, options.deliveredWithinMs ?? 20_000);
      await delivered.catch((error: Error) => {
        throw new Error(describe(options, round, `${error.message}\n${broker.output()}`));
      });
      report = oracle.check();
      const late = lateRepeats(report, killedAtNs, options.repeatAgeMsMax ?? 1250);
      if (report.faults.length > 0 || late.length > 0) {
        throw new Error(describe(options, round, [formatReport(report), ...late].join("\n")));
      }
      for (const { client, life } of traffic.subscribers) {
        if (life === "offline") await client.disconnect();
      }
    }
  } finally {
    await Promise.all(everyone.map((client) => client.end().catch(() => undefined)));
    await broker.kill();
  }
  return { ...report, kills: options.rounds, restartMs };
}

async function died(broker: BrokerProcess): Promise<never> {
  const { code, signal } = await broker.exited;
  throw new Error(`the broker ended by itself (${code ?? signal})\n${broker.output()}`);
}

function describe(options: KillOptions, round: number, text: string): string {
  return `round ${round} of ${options.rounds}, seed ${options.seed}\n${text}`;
}

/** Repeats after this kill of what had been delivered long before it. */
function lateRepeats(report: OracleReport, killedAtNs: bigint, ageMsMax: number): string[] {
  const texts: string[] = [];
  for (const { first, again } of report.repeats) {
    if (again.atNs < killedAtNs || first.atNs > killedAtNs) continue;
    const ageMs = Number(killedAtNs - first.atNs) / 1e6;
    if (ageMs <= ageMsMax) continue;
    const what = `${again.topic} number ${again.sequence} to ${again.session}`;
    texts.push(`repeated ${what}, delivered ${Math.round(ageMs)} ms before the kill`);
  }
  return texts;
}
