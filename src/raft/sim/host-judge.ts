// What the simulated hosts must keep, judged from outside: by the frames they send, by what reaches
// their machines, and by what clients are told.

import type { Message } from "../core/types.ts";
import { Violation } from "./checker.ts";
import { findAnomaly, type Operation } from "./linearizability.ts";

type OpenOperation = { -readonly [K in keyof Operation]: Operation[K] };

/** A write under way. Until it ends its fate is open. */
export type JudgedWrite = {
  readonly value: number;
  end(now: number): void;
  /** It certainly did not happen. */
  void(): void;
};

export class HostJudge {
  readonly #entries = new Map<string, string>();
  readonly #hashes = new Map<string, number>();
  readonly #leaders = new Map<string, number>();
  readonly #votes = new Map<string, number>();
  readonly #operations = new Map<string, OpenOperation[]>();
  #nextValue = 1;

  /** One applied entry at an index, and one state after it, over all nodes and lives. */
  applied(place: { group: number; node: number }, index: number, term: number, hash: number): void {
    const key = `${place.group}/${index}`;
    const entry = `${term}`;
    const known = this.#entries.get(key);
    if (known !== undefined && known !== entry) {
      throw new Violation("one entry an index", `${key} of term ${known} and of ${entry}`);
    }
    this.#entries.set(key, entry);
    this.installed(place, index, hash);
  }

  installed({ group, node }: { group: number; node: number }, index: number, hash: number): void {
    const key = `${group}/${index}`;
    const known = this.#hashes.get(key);
    if (known !== undefined && known !== hash) {
      throw new Violation("equal states", `node ${node} differs at ${key}`);
    }
    this.#hashes.set(key, hash);
  }

  /** Terms that had a leader, over all groups. */
  get leaderCount(): number {
    return this.#leaders.size;
  }

  leads(group: number, term: number, node: number): void {
    const key = `${group}/${term}`;
    const known = this.#leaders.get(key);
    if (known !== undefined && known !== node) {
      throw new Violation("one leader a term", `${known} and ${node} lead ${key}`);
    }
    this.#leaders.set(key, node);
  }

  /** Sees every message that leaves. */
  sent(group: number, message: Message): void {
    if (message.type === "vote-resp" && message.granted) {
      this.#voted(group, message.term, message.from, message.to);
    }
    if (message.type === "vote") this.#voted(group, message.term, message.from, message.from);
    if (message.type === "heartbeat" || message.type === "append") {
      this.leads(group, message.term, message.from);
    }
  }

  beginWrite(group: number, key: number, now: number): JudgedWrite {
    const value = this.#nextValue++;
    const operation: OpenOperation = { kind: "write", value, begin: now, end: Infinity };
    const list = this.#listOf(group, key);
    list.push(operation);
    return {
      value,
      end: (at) => {
        operation.end = at;
      },
      void: () => {
        list.splice(list.indexOf(operation), 1);
      },
    };
  }

  read(group: number, key: number, value: number, span: { begin: number; end: number }): void {
    this.#listOf(group, key).push({ kind: "read", value, ...span });
  }

  /** At the end: what clients saw could have happened one at a time. */
  judgeHistories(): void {
    for (const [place, operations] of this.#operations) {
      const anomaly = findAnomaly(operations);
      if (anomaly !== undefined) throw new Violation("linearizable", `${place}: ${anomaly}`);
    }
  }

  #voted(group: number, term: number, node: number, candidate: number): void {
    const key = `${group}/${term}/${node}`;
    const known = this.#votes.get(key);
    if (known !== undefined && known !== candidate) {
      const detail = `node ${node} voted for ${known} and ${candidate} in ${group}/${term}`;
      throw new Violation("one vote a term", detail);
    }
    this.#votes.set(key, candidate);
  }

  #listOf(group: number, key: number): OpenOperation[] {
    const place = `${group}/${key}`;
    const list = this.#operations.get(place) ?? [];
    this.#operations.set(place, list);
    return list;
  }
}
