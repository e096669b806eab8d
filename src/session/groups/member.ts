// What a session is to the shared groups that it belongs to: somebody who takes messages while it is
// connected, has room and is not busy with what it is owed from before.

import type { Positions } from "../../store/index.ts";
import type { SessionLink, Subscription } from "../api.ts";
import type { Dealt } from "../core/dealt.ts";
import type { Outbound, Outgoing } from "../core/outbound.ts";
import type { InFlightRecord } from "../core/records.ts";
import type { Candidate } from "./strategy.ts";

export interface Member extends Candidate {
  readonly durable: boolean;
  /** "wait": no room now; `MemberGroup.freed` is called when there is. */
  deal(outgoing: Outgoing): "taken" | "wait" | "too_large";
  /** The group has it durably that this member holds the message. */
  assigned(dealt: Dealt): void;
}

/** A group, as its members see it. */
export interface MemberGroup {
  connect(member: Member, subscription: Subscription): void;
  disconnect(member: Member): void;
  /** A member has room that had none. */
  freed(): void;
}

/** All shared groups, as sessions see them. Filters are whole: `$share/{name}/{filter}`. */
export interface Groups {
  /** The group of a shared filter; made if need be. */
  group(filter: string): MemberGroup;
  /** A durable subscription above QoS 0 counts from now on; a group that it makes begins at `start`. */
  addInterest(clientId: string, filter: string, start: Positions): void;
  /** It counts no more. */
  removeInterest(clientId: string, filter: string): void;
  /** Resolves when what `addInterest` made is durable. */
  created(filter: string): Promise<void>;
  /**
   * A client's session was read, or has ended (nothing in flight): messages of which groups do not
   * know whether it has bound them are decided. Resolves when groups have durably forgotten what it
   * holds.
   */
  resolve(
    clientId: string,
    inFlight: ReadonlyArray<{ readonly record: InFlightRecord }>,
  ): Promise<void>;
}

/** The filter that messages are matched with; undefined for one that is not shared. */
export function sharedTopicFilter(filter: string): string | undefined {
  if (!filter.startsWith(sharePrefix)) return undefined;
  return filter.slice(filter.indexOf("/", sharePrefix.length) + 1);
}

const sharePrefix = "$share/";

export type MemberHost = {
  readonly clientId: string;
  readonly durable: boolean;
  readonly link: SessionLink;
  readonly outbound: Outbound;
  /** Nothing that the session owes by itself comes first. */
  mayTake(): boolean;
  /** Something was sent or queued. */
  took(): void;
  pump(): void;
};

export class SharedMember implements Member {
  readonly #host: MemberHost;
  readonly #groups = new Map<string, MemberGroup>();

  constructor(host: MemberHost) {
    this.#host = host;
  }

  get clientId(): string {
    return this.#host.clientId;
  }

  get durable(): boolean {
    return this.#host.durable;
  }

  get inFlightCount(): number {
    return this.#host.outbound.inFlightCount;
  }

  deal(outgoing: Outgoing): "taken" | "wait" | "too_large" {
    const { link, outbound } = this.#host;
    const { message, choice } = outgoing;
    if (outbound.blocked || !this.#host.mayTake()) return "wait";
    const { qos, retain, identifiers } = choice;
    const delivery = { qos, dup: outgoing.dup, retain, packetId: 0, subscriptionIds: identifiers };
    if (!link.fits(message, delivery)) return "too_large";
    const outcome = outbound.dispatch(outgoing);
    this.#host.took();
    return outcome;
  }

  assigned(dealt: Dealt): void {
    this.#host.outbound.assigned(dealt);
    this.#host.pump();
  }

  /** A shared subscription is in effect, or its options have changed. */
  join(group: MemberGroup, subscription: Subscription): void {
    this.#groups.set(subscription.filter, group);
    group.connect(this, subscription);
  }

  leave(filter: string): void {
    const group = this.#groups.get(filter);
    this.#groups.delete(filter);
    group?.disconnect(this);
  }

  /** There may be room. */
  freed(): void {
    if (this.#groups.size === 0) return;
    if (this.#host.outbound.blocked || !this.#host.mayTake()) return;
    for (const group of this.#groups.values()) group.freed();
  }

  /** The connection has ended: nothing more is taken, and what was not finished goes back. */
  stop(): void {
    for (const group of this.#groups.values()) group.disconnect(this);
    this.#groups.clear();
    this.#host.outbound.takeBack();
  }
}
