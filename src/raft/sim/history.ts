// What the clients of a simulation saw: begin and end of every write and read, per register, and
// which commands were acknowledged at which place of the log.

import type { Checker } from "./checker.ts";
import { findAnomaly, type Operation } from "./linearizability.ts";
import { registerCount } from "./machine.ts";

export type OpenOperation = {
  readonly kind: "write" | "read";
  readonly key: number;
  value: number;
  readonly begin: number;
  end: number;
  /** It certainly had no effect, or saw nothing. */
  void: boolean;
};

type Ack = { readonly index: number; readonly term: number };

export class ClientHistory {
  readonly #operations: OpenOperation[] = [];
  readonly #acks: Ack[] = [];
  #clock = 0;
  #lastId = 0;

  beginWrite(key: number): OpenOperation {
    this.#lastId++;
    return this.#begin("write", key, this.#lastId);
  }

  beginRead(key: number): OpenOperation {
    return this.#begin("read", key, 0);
  }

  end(operation: OpenOperation, value: number): void {
    operation.value = value;
    operation.end = this.#clock++;
  }

  acknowledged(index: number, term: number): void {
    this.#acks.push({ index, term });
  }

  /** A sentence that says what no correct store can have shown, or undefined. */
  findFault(checker: Checker): string | undefined {
    for (const { index, term } of this.#acks) {
      if (index > checker.committedIndex || checker.termAt(index) !== term) {
        return `acknowledged ${index}/${term} is not in the log`;
      }
    }
    for (let key = 0; key < registerCount; key++) {
      const history: Operation[] = this.#operations.filter(
        (operation) => operation.key === key && !operation.void,
      );
      const anomaly = findAnomaly(history);
      if (anomaly !== undefined) return `register ${key}: ${anomaly}`;
    }
    return undefined;
  }

  #begin(kind: "write" | "read", key: number, value: number): OpenOperation {
    const begin = this.#clock++;
    const operation = { kind, key, value, begin, end: Number.POSITIVE_INFINITY, void: false };
    this.#operations.push(operation);
    return operation;
  }
}
