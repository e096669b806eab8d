// Which member of a shared group is asked first; whoever has no room passes it on to the next. Pure.
//
// - round_robin: whoever comes behind the one that took the last message;
// - least_inflight: the one with the fewest unfinished messages;
// - sticky: always the same, as long as it is connected and has room;
// - hash_client, hash_topic: by publisher or topic, as long as members stay the same and have room.

import { hash32 } from "../../base/index.ts";
import type { Ttv } from "../../store/index.ts";
import type { SharedStrategy } from "../settings.ts";

export interface Candidate {
  readonly clientId: string;
  /** Unfinished messages under way to it. */
  readonly inFlightCount: number;
}

export class MemberChoice {
  readonly #strategy: SharedStrategy;
  #next = 0;
  #sticky: string | undefined;

  constructor(strategy: SharedStrategy) {
    this.#strategy = strategy;
  }

  /** Index of the member to ask first. REQUIRES: there is one. */
  first(members: readonly Candidate[], message: Ttv): number {
    switch (this.#strategy) {
      case "round_robin":
        return this.#next % members.length;
      case "least_inflight":
        return this.#leastBusy(members);
      case "sticky": {
        const at = members.findIndex(({ clientId }) => clientId === this.#sticky);
        return at < 0 ? this.#next % members.length : at;
      }
      case "hash_client":
        return hash32(message.publisher) % members.length;
      case "hash_topic":
        return hash32(message.topic) % members.length;
    }
  }

  /** The member at `index` took the message. */
  took(members: readonly Candidate[], index: number): void {
    this.#next = index + 1;
    if (this.#strategy !== "sticky") return;
    const isKnown = members.some(({ clientId }) => clientId === this.#sticky);
    if (!isKnown) this.#sticky = members[index]?.clientId;
  }

  /** Of equals the one behind the last: an idle group takes turns. */
  #leastBusy(members: readonly Candidate[]): number {
    let best = this.#next % members.length;
    for (let step = 1; step < members.length; step++) {
      const at = (this.#next + step) % members.length;
      const count = (members[at] as Candidate).inFlightCount;
      if (count < (members[best] as Candidate).inFlightCount) best = at;
    }
    return best;
  }
}
