// The simulated network: delay, loss, repetition, reordering, messages held for whole elections,
// very old ones again, links cut one way or both, one type of message lost more than others.
// All of it drawn from the network's own random source.

import type { SeededRandom } from "../../base/index.ts";
import { decodeMessage, encodeMessage } from "../codec.ts";
import type { Message, NodeId } from "../core/types.ts";
import type { Coverage } from "./coverage.ts";
import type { MachineState } from "./machine.ts";
import type { EventQueue } from "./queue.ts";
import type { Swarm } from "./swarm.ts";

/** A message under way; a snapshot travels with its contents. */
export type Parcel = {
  readonly message: Message;
  readonly contents: MachineState | undefined;
  /** Incarnation of the sender's log: what it said before it lost entries is not believed. */
  readonly incarnation: number;
};

/** After healing: well below an election time-out, so that a change of leader is a fault. */
const calmDelayMsMax = 20;

/** Old messages kept for replay. */
const archiveMax = 64;

export class SimNetwork {
  readonly #queue: EventQueue;
  readonly #random: SeededRandom;
  readonly #swarm: Swarm;
  readonly #coverage: Coverage;
  readonly #deliver: (parcel: Parcel) => void;
  readonly #cuts = new Set<number>();
  readonly #archive: Parcel[] = [];
  #healed = false;
  #era = 0;

  constructor(
    queue: EventQueue,
    random: SeededRandom,
    swarm: Swarm,
    coverage: Coverage,
    deliver: (parcel: Parcel) => void,
  ) {
    this.#queue = queue;
    this.#random = random;
    this.#swarm = swarm;
    this.#coverage = coverage;
    this.#deliver = deliver;
  }

  send(sent: Parcel): void {
    const { message } = sent;
    const parcel = this.#swarm.encoded
      ? { ...sent, message: decodeMessage(encodeMessage(message)) }
      : sent;
    if (this.#isCut(message.from, message.to)) {
      this.#lose(message);
      return;
    }
    const delayMsMax = this.#healed
      ? Math.min(this.#swarm.delayMsMax, calmDelayMsMax)
      : this.#swarm.delayMsMax;
    const delay = this.#random.below(delayMsMax) + 1;
    if (this.#healed) {
      this.#sendAfter(delay, parcel);
      return;
    }
    this.#sendWithFaults(parcel, delay);
  }

  cut(from: NodeId, to: NodeId): void {
    this.#cuts.add(linkKey(from, to));
  }

  /** Counts the mends: a node that is isolated in two of them was not in between. */
  get era(): number {
    return this.#era;
  }

  mend(): void {
    this.#era++;
    this.#cuts.clear();
  }

  /** Mends for good: nothing is lost, repeated or held any more, and what is held is lost. */
  heal(): void {
    this.mend();
    this.#healed = true;
  }

  isIsolated(node: NodeId, all: readonly NodeId[]): boolean {
    return all.every(
      (other) => other === node || (this.#isCut(node, other) && this.#isCut(other, node)),
    );
  }

  #sendWithFaults(parcel: Parcel, delay: number): void {
    const { message } = parcel;
    const { faults, settings, tickMs } = this.#swarm;
    const swarm = this.#swarm;
    const random = this.#random;
    // Every draw is made whatever the faults are, so that leaving one out keeps the rest.
    const lost = random.chance(swarm.lossRate) && faults.has("loss");
    const typeLost = random.chance(swarm.typelossRate) && faults.has("typeloss");
    const repeated = random.chance(swarm.repeatRate) && faults.has("repeat");
    const held = random.chance(swarm.holdRate) && faults.has("hold");
    const replayed = random.chance(swarm.replayRate) && faults.has("replay");
    const place = random.below(archiveMax);
    if (lost || (typeLost && message.type === swarm.lostType)) {
      this.#lose(message);
      return;
    }
    const electionMs = settings.electionTicks * tickMs;
    if (held) this.#coverage.messagesHeld++;
    if (held) this.#hold(delay + electionMs * 3, parcel);
    else this.#sendAfter(delay, parcel);
    if (repeated) {
      this.#coverage.messagesRepeated++;
      this.#sendAfter(delay * 2 + 1, parcel);
    }
    const old = this.#archive[place];
    if (replayed && old !== undefined) {
      this.#coverage.messagesReplayed++;
      this.#sendAfter(delay, old);
    }
    // Keeps what is there for long: only some places are renewed.
    if (old === undefined) this.#archive.push(parcel);
    else if (place % 8 === 0) this.#archive[place] = parcel;
  }

  #sendAfter(delay: number, parcel: Parcel): void {
    const { from, to } = parcel.message;
    this.#queue.after(delay, () => {
      if (this.#isCut(from, to)) this.#lose(parcel.message);
      else this.#deliver(parcel);
    });
  }

  #hold(delay: number, parcel: Parcel): void {
    this.#queue.after(delay, () => {
      const { message } = parcel;
      if (this.#healed || this.#isCut(message.from, message.to)) this.#lose(message);
      else this.#deliver(parcel);
    });
  }

  #lose(message: Message): void {
    this.#coverage.messagesLost++;
    if (message.type === "snapshot") this.#coverage.snapshotsLost++;
  }

  #isCut(from: NodeId, to: NodeId): boolean {
    return this.#cuts.size > 0 && this.#cuts.has(linkKey(from, to));
  }
}

function linkKey(from: NodeId, to: NodeId): number {
  return from * 256 + to;
}
