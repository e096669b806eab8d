// Rounds of load and kill -9 on one data directory: after every restart all sessions come back, what
// was acked must be delivered, and the oracle must be content.
//
// A round is killed at a named phase of the broker (kill-aims.ts) or at a drawn moment after the
// wanted acks. After some kills the restart is killed too, at a drawn moment, and then repeated.

import { setTimeout as sleep } from "node:timers/promises";
import { SeededRandom } from "../../src/base/index.ts";
import type { BrokerProcess } from "../support/broker-process.ts";
import { DeliveryOracle, formatReport, type OracleReport } from "../support/oracle.ts";
import { type KillAim, killedAtPhase } from "./kill-aims.ts";
import {
  connectSubscribers,
  createTraffic,
  openTraffic,
  startLoad,
  startWandering,
  type Traffic,
  waitDelivered,
} from "./traffic.ts";

export type KillOptions = {
  /** Starts the broker on the data directory; port 0 the first time, then always the same. */
  readonly start: (port: number, env: Readonly<Record<string, string>>) => Promise<BrokerProcess>;
  /** Starts it likewise and kills it after so long, ready or not. */
  readonly startAndKill?: (port: number, afterMs: number) => Promise<void>;
  readonly rounds: number;
  readonly ackedPerRound: number;
  readonly seed: number | string;
  /** Where to kill in each round; a round without an aim is killed at a drawn moment. */
  readonly aims?: ReadonlyArray<KillAim | undefined>;
  /** How old before the kill a QoS 1 delivery may be that is repeated. Default 1 s. */
  readonly repeatAgeMsMax?: number;
  readonly stillMs?: number;
  /** Command that repeats the run, for the text of a failure. */
  readonly repeat?: string;
};

export type KillReport = Omit<OracleReport, "repeats"> & {
  readonly kills: number;
  /** Repeats at QoS 1. */
  readonly repeatCount: number;
  /** Kills by the aim that was hit (its name, then each phase), `random` and `restart`. */
  readonly hits: ReadonlyMap<string, number>;
  readonly restartMs: readonly number[];
};

/** Longest wait from provoking a phase to the end of the process. */
const provokedWithinMs = 15_000;
const provokeEveryMs = 400;
const driftMsMax = 250;
/** Restarts are killed at a moment before this one; most brokers are ready by then. */
const restartKillMsMax = 700;
const restartKillChance = 0.25;

/** Throws with the round, the seed and what is wrong; returns the counts when all is well. */
export async function runKillRounds(options: KillOptions): Promise<KillReport> {
  const run = new KillRun(options);
  try {
    await run.open();
    for (let round = 1; round <= options.rounds; round++) await run.round(round);
    return run.report();
  } finally {
    await run.end();
  }
}

class KillRun {
  readonly #options: KillOptions;
  readonly #random: SeededRandom;
  readonly #oracle = new DeliveryOracle();
  readonly #traffic: Traffic = createTraffic(this.#oracle);
  readonly #hits = new Map<string, number>();
  readonly #restartMs: number[] = [];
  #broker: BrokerProcess | undefined;
  #killed: BrokerProcess | undefined;
  #port = 0;
  #judgedNs = 0n;
  #repeatCount = 0;
  #last: OracleReport = this.#oracle.check();

  constructor(options: KillOptions) {
    this.#options = options;
    this.#random = new SeededRandom(options.seed);
  }

  async open(): Promise<void> {
    this.#broker = await this.#options.start(0, this.#aimOf(1)?.env ?? {});
    this.#port = this.#broker.port;
    await openTraffic(this.#traffic, this.#port);
  }

  async round(round: number): Promise<void> {
    try {
      await this.#runRound(round);
    } catch (error) {
      const { rounds, seed, repeat } = this.#options;
      const aim = this.#aimOf(round);
      const where = `round ${round} of ${rounds} (${aim?.name ?? "random"}), seed ${seed}`;
      const said = [where, (error as Error).message];
      if (this.#killed !== undefined) said.push("The killed broker said:", this.#killed.output());
      if (this.#broker !== undefined) said.push("The last broker said:", this.#broker.output());
      if (repeat !== undefined) said.push(`to repeat: ${repeat}`);
      throw new Error(said.join("\n"), { cause: error });
    }
  }

  report(): KillReport {
    const { rounds: kills } = this.#options;
    const { faults, sent, acked, received } = this.#last;
    const counts = { kills, repeatCount: this.#repeatCount, hits: this.#hits };
    return { faults, sent, acked, received, ...counts, restartMs: this.#restartMs };
  }

  async end(): Promise<void> {
    await Promise.all(this.#everyone().map((client) => client.end().catch(() => undefined)));
    await this.#broker?.kill();
  }

  async #runRound(round: number): Promise<void> {
    const load = startLoad(this.#traffic, this.#random.next32());
    const wandering = startWandering(this.#traffic, this.#port);
    const broker = this.#broker as BrokerProcess;
    await Promise.race([load.untilAcked(this.#options.ackedPerRound), endedEarly(broker)]);
    await this.#kill(broker, this.#aimOf(round));
    this.#killed = broker;
    const killedAtNs = process.hrtime.bigint();
    load.halt();
    await Promise.all([wandering.stop(), ...this.#everyone().map((client) => client.waitClosed())]);
    await this.#restart(round);
    await load.finish();
    const names = this.#traffic.subscribers.map(({ client }) => client.clientId);
    const missing = await waitDelivered(this.#oracle, names, this.#options.stillMs ?? 20_000);
    if (missing.length > 0) {
      const first = missing.slice(0, 5).map((line) => `  ${line}`);
      throw new Error([`${missing.length} acked messages not delivered`, ...first].join("\n"));
    }
    this.#judge(killedAtNs);
    for (const { client, life } of this.#traffic.subscribers) {
      if (life === "offline") await client.disconnect();
    }
  }

  async #kill(broker: BrokerProcess, aim: KillAim | undefined): Promise<void> {
    if (aim === undefined) {
      await Promise.race([sleep(this.#random.below(driftMsMax)), endedEarly(broker)]);
      await broker.kill();
      this.#count("random");
      return;
    }
    const deadline = performance.now() + provokedWithinMs;
    let hasEnded = false;
    const ended = broker.exited.then(() => {
      hasEnded = true;
    });
    while (!hasEnded) {
      if (performance.now() > deadline) throw new Error(`${aim.phase} did not come`);
      await aim.provoke(broker, this.#traffic);
      await Promise.race([ended, sleep(provokeEveryMs)]);
    }
    const phase = killedAtPhase(broker);
    if (phase === undefined) throw new Error("the broker ended by itself");
    this.#count(aim.name);
    this.#count(phase);
  }

  async #restart(round: number): Promise<void> {
    const { start, startAndKill } = this.#options;
    if (startAndKill !== undefined && this.#random.chance(restartKillChance)) {
      await startAndKill(this.#port, this.#random.below(restartKillMsMax));
      this.#count("restart");
    }
    this.#broker = await start(this.#port, this.#aimOf(round + 1)?.env ?? {});
    this.#restartMs.push(this.#broker.readyMs);
    await connectSubscribers(this.#traffic, this.#port);
    await Promise.all(this.#traffic.publishers.map((publisher) => publisher.connect(this.#port)));
  }

  #judge(killedAtNs: bigint): void {
    this.#last = this.#oracle.check();
    const late = lateRepeats(this.#last, killedAtNs, this.#options.repeatAgeMsMax ?? 1000);
    if (this.#last.faults.length > 0 || late.length > 0) {
      throw new Error([formatReport(this.#last), ...late].join("\n"));
    }
    this.#repeatCount += this.#last.repeats.filter(
      ({ again }) => again.atNs > this.#judgedNs,
    ).length;
    // The last round stays known, for the order across rounds.
    this.#oracle.forget(this.#judgedNs);
    this.#judgedNs = process.hrtime.bigint();
  }

  #aimOf(round: number): KillAim | undefined {
    return this.#options.aims?.[round - 1];
  }

  #count(what: string): void {
    this.#hits.set(what, (this.#hits.get(what) ?? 0) + 1);
  }

  #everyone() {
    const { publishers, subscribers } = this.#traffic;
    return [...publishers, ...subscribers.map(({ client }) => client)];
  }
}

async function endedEarly(broker: BrokerProcess): Promise<never> {
  const { code, signal } = await broker.exited;
  throw new Error(`the broker ended by itself (${code ?? signal})`);
}

/** Repeats by the broker after this kill of what had been delivered long before it. */
function lateRepeats(report: OracleReport, killedAtNs: bigint, ageMsMax: number): string[] {
  const texts: string[] = [];
  for (const { first, again, isExplainedByPublisher } of report.repeats) {
    if (isExplainedByPublisher || again.atNs < killedAtNs || first.atNs > killedAtNs) continue;
    const ageMs = Number(killedAtNs - first.atNs) / 1e6;
    if (ageMs <= ageMsMax) continue;
    const what = `${again.topic} number ${again.sequence} to ${again.session}`;
    const ids = `id ${first.packetId} on connection ${first.connection}, then ${again.packetId} on ${again.connection}`;
    texts.push(`repeated ${what} (${ids}), delivered ${Math.round(ageMs)} ms before the kill`);
  }
  return texts;
}
