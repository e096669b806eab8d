// Kills that are aimed at a phase of the broker, by the hooks of docs/testing.md: the process is
// started with FLAGSTONE_TEST_KILL, the count begins with a signal that is sent under load, and the
// phase is brought about: by the end of a generation, or by a client that takes a session over.

import type { SeededRandom } from "../../src/base/index.ts";
import type { BrokerProcess } from "../support/broker-process.ts";
import { RawClient } from "../support/raw-client.ts";
import type { Traffic } from "./traffic.ts";

export type KillAim = {
  /** What is aimed at; kills are counted by it. */
  readonly name: KillAimName;
  readonly phase: string;
  /** For the start of the process. */
  readonly env: Readonly<Record<string, string>>;
  /** Brings the phase about; called again until the process has ended. */
  readonly provoke: (broker: BrokerProcess, traffic: Traffic) => Promise<void>;
};

type Phases = {
  readonly names: readonly string[];
  /** The process ends at one of the first so many. */
  readonly countMax: number;
  readonly provoke: "rotate" | "wait" | "takeover";
};

const phasesOf = {
  seal: { names: ["slab.sealed", "slab.written"], countMax: 6, provoke: "rotate" },
  checkpoint: {
    names: [
      "checkpoint.captured",
      "checkpoint.prepared",
      "checkpoint.committed",
      "checkpoint.released",
    ],
    countMax: 6,
    provoke: "rotate",
  },
  generation: {
    names: ["generation.rotated", "generation.sealed"],
    countMax: 4,
    provoke: "rotate",
  },
  session: {
    names: ["session.checkpoint", "session.checkpointed"],
    countMax: 20,
    provoke: "wait",
  },
  takeover: {
    names: ["takeover.stopped", "takeover.committed", "takeover.claimed"],
    countMax: 2,
    provoke: "takeover",
  },
} as const satisfies Record<string, Phases>;

export type KillAimName = keyof typeof phasesOf;

export const killAimNames = Object.keys(phasesOf) as KillAimName[];

/** `each` kills at every aim, spread over the rounds by the seed; the other rounds have none. */
export function drawAims(
  rounds: number,
  each: number,
  random: SeededRandom,
): ReadonlyArray<KillAim | undefined> {
  const places: Array<KillAim | undefined> = Array(rounds).fill(undefined);
  const free = places.map((_, index) => index);
  for (const name of killAimNames) {
    for (let number = 0; number < each; number++) {
      const [place] = free.splice(random.below(free.length), 1);
      if (place === undefined) throw new Error(`${rounds} rounds have no place for all aims`);
      places[place] = createAim(name, number, random);
    }
  }
  return places;
}

/** The phase at which a process ended itself; undefined when something else ended it. */
export function killedAtPhase(broker: BrokerProcess): string | undefined {
  return /^test: killed at (\S+)$/m.exec(broker.stderr())?.[1];
}

function createAim(name: KillAimName, number: number, random: SeededRandom): KillAim {
  const { names, countMax, provoke }: Phases = phasesOf[name];
  const phase = `${names[number % names.length]}:${1 + random.below(countMax)}`;
  const signals = provoke === "rotate" ? "1" : "count";
  const env = { FLAGSTONE_TEST_KILL: phase, FLAGSTONE_TEST_SIGNALS: signals };
  const victims = random.next32();
  let turn = 0;
  return {
    name,
    phase,
    env,
    async provoke(broker, traffic) {
      process.kill(broker.pid, "SIGUSR2");
      if (provoke === "takeover") await takeOver(broker, traffic, victims + turn++);
    },
  };
}

/**
 * A second connection under the client id of one that is online: a subscriber or a publisher. It
 * takes the session over, acknowledges nothing, and ends with the broker.
 */
async function takeOver(broker: BrokerProcess, traffic: Traffic, turn: number): Promise<void> {
  const online = traffic.subscribers.filter(({ life }) => life === "online");
  const victims = [...online.map(({ client }) => client), ...traffic.publishers];
  const victim = victims[turn % victims.length];
  if (victim === undefined) throw new Error("nobody is online");
  // The broker may end at any moment now: that the connection fails is what is hoped for.
  const rival = await RawClient.open(broker.port, 4).catch(() => undefined);
  await rival?.connect({ clientId: victim.clientId, clean: false }).catch(() => undefined);
}
