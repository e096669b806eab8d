// Commands for the roster from any node: carried out here where this node leads it, and sent to the
// leader else, again and again until it answers or time is up. A repeat is answered like the first.

import {
  type Cancel,
  type Clock,
  isCodedError,
  type Logger,
  sleep,
  toError,
} from "../base/index.ts";
import type { Group, RaftHost } from "../raft/index.ts";
import type { Roster, RosterAnswer, RosterCommand } from "./core/roster.ts";
import {
  decodeRosterNote,
  encodeCommand,
  encodeRosterNote,
  type RosterNote,
  rosterVersion,
} from "./core/roster-codec.ts";
import { clusterErrors } from "./errors.ts";
import { type RosterMachine, rosterGroup } from "./roster-machine.ts";

export type RosterClientParts = {
  readonly host: RaftHost;
  readonly machine: RosterMachine;
  readonly group: Group;
  readonly clock: Clock;
  readonly logger: Logger;
};

export type ClockOffset = { readonly node: number; readonly aheadMs: number };

/** Before a command is tried again. */
const retryMs = 100;
/** An answer is waited for so long before the command is sent again. */
const answerMs = 1_000;
/** Longer than an election. */
const patienceMs = 15_000;
/** Commands of others under way here; more are dropped, and come again. */
const asksMax = 64;

export class RosterClient {
  readonly #parts: RosterClientParts;
  readonly #waiting = new Map<number, (note: RosterNote) => void>();
  #asks = 0;
  #nextId: number;
  #isClosed = false;

  constructor(parts: RosterClientParts) {
    this.#parts = parts;
    // Answers to an earlier start of this node are not taken for those to this one.
    this.#nextId = Math.floor(parts.clock.wallUs() / 1_000) * 1_000;
    parts.machine.onTold = (from, data) => this.#onTold(from, data);
  }

  /** As applied here. */
  get roster(): Roster {
    return this.#parts.machine.roster;
  }

  get group(): Group {
    return this.#parts.group;
  }

  /**
   * Resolves when the command is committed.
   * @throws CLUSTER_CHANGE_REFUSED, CLUSTER_ROSTER_UNREACHED: then it may have happened or may yet.
   */
  async change(command: RosterCommand): Promise<RosterAnswer & { ok: true }> {
    const answer = await this.#insist(() => this.#attempt(command));
    if (!answer.ok) throw clusterErrors.refused({ reason: answer.reason });
    return answer;
  }

  /**
   * How far this node's wall clock is ahead of that of each other member of the roster that answers, in
   * ms: what the way of the question may explain is taken off. Waits for a majority, this one included.
   * @throws CLUSTER_ROSTER_UNREACHED.
   */
  clockOffsets(): Promise<ClockOffset[]> {
    const { voters } = this.group.status().configuration;
    const others = voters.filter((node) => node !== this.group.node);
    return this.#insist(async () => {
      const answers = await Promise.all(others.map((node) => this.#askTime(node)));
      const known = answers.filter((answer) => answer !== undefined);
      return 2 * (known.length + 1) > voters.length ? known : undefined;
    });
  }

  /** The same of every site that answers within a second, whether they are a majority or not. */
  async heard(): Promise<ClockOffset[]> {
    const others = [...this.roster.sites.values()].filter(
      ({ node, state }) => node !== this.group.node && state !== "left",
    );
    const answers = await Promise.all(others.map(({ node }) => this.#askTime(node)));
    return answers.filter((answer) => answer !== undefined);
  }

  close(): void {
    this.#isClosed = true;
    this.#parts.machine.onTold = undefined;
  }

  async #insist<T>(attempt: () => Promise<T | undefined>): Promise<T> {
    const { clock } = this.#parts;
    const endMs = clock.elapsedMs() + patienceMs;
    while (!this.#isClosed && clock.elapsedMs() < endMs) {
      const result = await attempt();
      if (result !== undefined) return result;
      await sleep(clock, retryMs);
    }
    throw clusterErrors.rosterUnreached({ waitedMs: patienceMs });
  }

  /** Undefined when nobody took it, or nobody answered. */
  async #attempt(command: RosterCommand): Promise<RosterAnswer | undefined> {
    if (this.group.role === "leader") return this.#propose(command);
    const { leader } = this.group;
    const note = await this.#exchange(leader, (id) => ({ kind: "ask", id, command }));
    return note?.kind === "answer" ? note.answer : undefined;
  }

  async #propose(command: RosterCommand): Promise<RosterAnswer | undefined> {
    try {
      const data = encodeCommand(command);
      const [answer] = await this.group.propose([{ version: rosterVersion, data }]);
      return answer as RosterAnswer;
    } catch (error) {
      if (!isCodedError(error) || !["retry", "limit", "closed"].includes(error.kind)) throw error;
      return undefined;
    }
  }

  async #askTime(node: number): Promise<ClockOffset | undefined> {
    const { clock } = this.#parts;
    const sentMs = clock.elapsedMs();
    const note = await this.#exchange(node, (id) => ({ kind: "clock", id, wallUs: 0 }));
    if (note?.kind !== "clock") return undefined;
    const wayMs = clock.elapsedMs() - sentMs;
    const aheadMs = (clock.wallUs() - note.wallUs) / 1_000;
    // Its clock was read somewhere between the question and now.
    return { node, aheadMs: aheadMs < 0 ? aheadMs : Math.max(0, aheadMs - wayMs) };
  }

  async #exchange(to: number, noteOf: (id: number) => RosterNote): Promise<RosterNote | undefined> {
    const { host, clock } = this.#parts;
    const id = ++this.#nextId;
    if (to === 0 || !host.tell(rosterGroup, to, encodeRosterNote(noteOf(id)))) return undefined;
    let cancel: Cancel | undefined;
    const note = await new Promise<RosterNote | undefined>((resolve) => {
      this.#waiting.set(id, resolve);
      cancel = clock.schedule(answerMs, () => resolve(undefined));
    });
    cancel?.();
    this.#waiting.delete(id);
    return note;
  }

  #onTold(from: number, data: Uint8Array): void {
    const note = decodeRosterNote(data);
    if (note === undefined) return;
    const { host, clock } = this.#parts;
    if (note.kind === "ask") void this.#answer(from, note.id, note.command);
    else if (note.kind === "clock" && note.wallUs === 0) {
      const { id } = note;
      host.tell(rosterGroup, from, encodeRosterNote({ kind: "clock", id, wallUs: clock.wallUs() }));
    } else this.#waiting.get(note.id)?.(note);
  }

  async #answer(from: number, id: number, command: RosterCommand): Promise<void> {
    if (this.#asks >= asksMax || this.group.role !== "leader") return;
    this.#asks++;
    try {
      const answer = await this.#propose(command);
      if (answer === undefined) return;
      const note = encodeRosterNote({ kind: "answer", id, answer });
      this.#parts.host.tell(rosterGroup, from, note);
    } catch (error) {
      this.#parts.logger.error("cluster.roster_failed", { reason: toError(error).message });
    } finally {
      this.#asks--;
    }
  }
}
