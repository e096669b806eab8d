// A shared group on this node: its members, and the dealing of messages to those that are connected.
//
// While a durable session is a member at QoS 1 or 2 the group is durable: messages come through its
// cursor (group-store.ts) and wait for the first member to return. Otherwise it is live: messages come
// straight from their publishers, and go to who is connected. What a member that left had not finished
// is dealt again first; at QoS 2 what was half delivered never is (4.8.2).
//
// A group whose last durable member has gone stays durable until its backlog is dealt, if somebody is
// connected to take it; without anybody the backlog goes, as with UNSUBSCRIBE.

import type { CodedError } from "../../base/index.ts";
import type { DeliverableTtv, Positions, Ttv } from "../../store/index.ts";
import type { GroupSummary, LiveTarget, Subscription } from "../api.ts";
import type { SessionContext } from "../context.ts";
import { type Choice, chooseDelivery, isExpired } from "../core/choose.ts";
import type { Dealt } from "../core/dealt.ts";
import { keepMessage } from "../core/kept-message.ts";
import type { Outgoing } from "../core/outbound.ts";
import type { InFlightSource } from "../core/records.ts";
import type { Assignment } from "./assignments.ts";
import { type DealOutcome, type GroupHost, GroupStore } from "./group-store.ts";
import type { Member, MemberGroup } from "./member.ts";
import { type NextReturned, Returned } from "./returned.ts";
import type { StoredGroup } from "./stored-group.ts";
import { MemberChoice } from "./strategy.ts";

type Connected = {
  readonly clientId: string;
  readonly member: Member;
  /** One, as `chooseDelivery` takes it. */
  subscriptions: readonly [Subscription];
  readonly inFlightCount: number;
};

/** A live group keeps nothing: its messages have no place in the log. */
const nowhere: InFlightSource = {
  kind: "log",
  ref: { shard: 0, generation: 0, stream: 0, timeUs: 0 },
};

export class SharedGroup implements LiveTarget, MemberGroup, GroupHost {
  /** The whole shared filter: a group publishes and subscribes as nobody. */
  readonly clientId: string;
  readonly takes = "dealt";
  readonly filter: string;
  readonly #context: SessionContext;
  readonly #choice: MemberChoice;
  readonly #onEmpty: (group: SharedGroup) => void;
  readonly #returned: Returned;
  #connected: Connected[] = [];
  /** Durable sessions with a subscription above QoS 0, by their level in keys. */
  readonly #durableMembers = new Set<string>();
  /** Client id -> what may or may not be bound in its session. */
  readonly #unsure = new Map<string, Assignment[]>();
  #stored: GroupStore | undefined;
  /** The end of what was stored before. */
  #ending: Promise<void> = Promise.resolve();
  #created: Promise<void> = Promise.resolve();
  /** What its cursor had passed when it became live: not dealt a second time. */
  #passed: Positions = new Map();
  #pumpScheduled = false;
  #closed = false;

  constructor(
    context: SessionContext,
    names: { readonly name: string; readonly filter: string },
    onEmpty: (group: SharedGroup) => void,
  ) {
    this.#context = context;
    this.clientId = names.name;
    this.filter = names.filter;
    this.#onEmpty = onEmpty;
    this.#choice = new MemberChoice(context.settings.sharedStrategy);
    this.#returned = new Returned(context, names.name, () => this.ready());
  }

  get isDurable(): boolean {
    return this.#stored !== undefined;
  }

  /** Resolves when what makes the group durable is durable itself. */
  get created(): Promise<void> {
    return this.#created;
  }

  /** As an operator sees it. */
  get summary(): GroupSummary {
    const store = this.#stored;
    const returned = this.#returned.size;
    return {
      group: this.clientId,
      durable: store !== undefined,
      connectedMembers: this.#connected.length,
      durableMembers: this.#durableMembers.size,
      inFlight: Math.max(0, (store?.assignments.size ?? 0) - returned),
      returned,
      backlog: returned > 0 || store?.hasWaiting === true,
      dropped: store?.dropped ?? 0,
    };
  }

  // -------------------------------------------------------------- durable members

  /** A durable session's subscription counts from now on. `start`: where a new group begins. */
  durableJoined(member: string, start: Positions): void {
    this.#durableMembers.add(member);
    if (this.#stored !== undefined) return;
    const store = this.#open({ start });
    this.#created = this.#ending.then(() => store.create());
  }

  durableLeft(member: string): void {
    this.#durableMembers.delete(member);
    this.#endIfOver();
  }

  /** A stored subscription, before the store serves: nothing is written or read yet. */
  durableLoaded(member: string): void {
    this.#durableMembers.add(member);
  }

  /** What the store has of this group; `start` where it has nothing. Before the store serves. */
  load(from: StoredGroup | { readonly start: Positions }): void {
    for (const { assignment, record } of this.#open(from).restored) {
      if (record.qos === 2 && record.clientId !== "") this.#doubt(record.clientId, assignment);
      else this.#returned.add(assignment);
    }
  }

  isUnsureOf(clientId: string): boolean {
    return this.#unsure.has(clientId);
  }

  /** Clients whose sessions have to say what they have bound. */
  get unsureClients(): string[] {
    return [...this.#unsure.keys()];
  }

  /** The store serves. */
  start(): void {
    const store = this.#stored;
    if (store === undefined) return;
    this.#created = store.create();
  }

  /**
   * What a client's session says of the messages of this group: `isBound` are its own. Resolves when
   * the group has durably forgotten those; until then the client must not finish them.
   */
  async resolve(clientId: string, isBound: (assignment: Assignment) => boolean): Promise<void> {
    const unsure = this.#unsure.get(clientId) ?? [];
    this.#unsure.delete(clientId);
    const forgotten = unsure.map((assignment) => {
      if (!isBound(assignment)) {
        assignment.back(false);
        return undefined;
      }
      return new Promise<void>((resolve) => {
        assignment.bound(resolve);
      });
    });
    await Promise.all(forgotten);
  }

  #open(from: StoredGroup | { readonly start: Positions }): GroupStore {
    const { clientId: name, filter } = this;
    const store = new GroupStore({ context: this.#context, name, filter, host: this }, from);
    this.#stored = store;
    this.#context.store.interest.add(filter, store.cursor);
    return store;
  }

  // -------------------------------------------------------------- connected members

  connect(member: Member, subscription: Subscription): void {
    const known = this.#connected.find((other) => other.member === member);
    if (known !== undefined) {
      known.subscriptions = [subscription];
      return;
    }
    const isFirst = this.#connected.length === 0;
    this.#connected.push({
      clientId: member.clientId,
      member,
      subscriptions: [subscription],
      get inFlightCount() {
        return member.inFlightCount;
      },
    });
    if (isFirst) {
      const everything = { noLocal: false, retainAsPublished: true, retainHandling: 2 } as const;
      const own = { filter: this.filter, qos: 2, identifier: 0, ...everything } as const;
      this.#context.live.set(this, own);
    }
    this.ready();
  }

  disconnect(member: Member): void {
    const count = this.#connected.length;
    this.#connected = this.#connected.filter((other) => other.member !== member);
    if (this.#connected.length === count || this.#connected.length > 0) return;
    this.#context.live.removeAll(this);
    this.#returned.dropLive();
    this.#endIfOver();
  }

  freed(): void {
    if (this.#returned.size > 0 || this.#stored?.waits === true) this.ready();
  }

  // -------------------------------------------------------------- messages come in

  deliver(message: Ttv, _subscriptions: readonly Subscription[], stored: boolean): void {
    if (this.#connected.length === 0) return;
    if (stored && this.#comesByCursor(message)) return;
    if (this.#returned.hasLive) {
      this.#wait(message);
      return;
    }
    if (this.#dealLive(message, false) === "wait") this.#wait(message);
  }

  get isBusy(): boolean {
    return this.#returned.size > 0 || this.#closed;
  }

  /** From the cursor. */
  deal(message: DeliverableTtv, assignment: Assignment, inDoubt: boolean): DealOutcome {
    if (inDoubt) assignment.sent = true;
    return this.#dealStored(message, assignment, inDoubt);
  }

  #dealStored(message: Ttv, assignment: Assignment, inDoubt: boolean): DealOutcome {
    const source = { kind: "log", ref: assignment.ref, group: this.clientId } as const;
    const outgoing = { message, source, dup: assignment.sent, dealt: assignment };
    const outcome = this.#deal(outgoing, (member, { qos }) => {
      // At most once: what may have been sent at QoS 0 is not sent again.
      if (qos === 0) return inDoubt ? "taken" : "ask";
      assignment.to(member, qos);
      return "ask";
    });
    if (outcome === "wait") assignment.kept();
    else if (outcome === "acked") assignment.taken();
    else assignment.done();
    return outcome === "acked" ? "taken" : outcome;
  }

  #dealLive(message: Ttv, sent: boolean): DealOutcome {
    const dealt = new LiveDealt(this, message);
    const outgoing = { message, source: nowhere, dup: sent, dealt };
    // Made before the group was durable: there is nothing that a stored session could bind.
    const outcome = this.#deal(outgoing, (member, { qos }) =>
      qos === 2 && member.durable ? "skip" : "ask",
    );
    return outcome === "acked" ? "taken" : outcome;
  }

  /**
   * Asks the members in turn. "acked": whoever took it has to ack it. `before` is called for each, and
   * may decide itself; it comes before the message is sent, since the ack may come at once.
   */
  #deal(
    outgoing: Omit<Outgoing, "choice"> & { readonly dealt: Dealt },
    before: (member: Member, choice: Choice) => "taken" | "skip" | "ask",
  ): DealOutcome | "acked" {
    const members = this.#connected;
    if (members.length === 0) return "wait";
    const { dealt: _dealt, ...unacked } = outgoing;
    const first = this.#choice.first(members, outgoing.message);
    let refused = 0;
    for (let step = 0; step < members.length; step++) {
      const at = (first + step) % members.length;
      const { member, subscriptions } = members[at] as Connected;
      const choice = chooseDelivery(outgoing.message, subscriptions, "") as Choice;
      const decided = before(member, choice);
      if (decided === "taken") return "taken";
      if (decided === "skip") continue;
      const isAcked = choice.qos > 0;
      const outcome = member.deal({ ...(isAcked ? outgoing : unacked), choice });
      if (outcome === "too_large") refused++;
      if (outcome !== "taken") continue;
      this.#choice.took(members, at);
      this.#context.counters.groupMessagesDealt++;
      return isAcked ? "acked" : "taken";
    }
    if (refused < members.length) return "wait";
    this.#context.counters.tooLargeDropped++;
    return "refused";
  }

  /** Live, and nobody has room now. */
  #wait(message: Ttv): void {
    if (message.qos === 0) this.#context.counters.qos0Dropped++;
    else this.#returned.addLive(keepMessage(message), false);
  }

  /** Stored messages come through the cursor, but for those from before there was one. */
  #comesByCursor(message: Ttv): boolean {
    const shard = this.#context.store.shardOf(message.topic, message.publisher);
    const bounds = this.#stored === undefined ? this.#passed : this.#stored.start;
    const isBefore = message.timeUs <= (bounds.get(shard) ?? 0);
    return this.#stored === undefined ? isBefore : !isBefore;
  }

  // -------------------------------------------------------------- what becomes of messages

  finished(assignment: Assignment): void {
    this.#returned.remove(assignment);
  }

  returned(assignment: Assignment): void {
    this.#context.counters.groupMessagesReturned++;
    this.#returned.add(assignment);
    this.ready();
  }

  unsure(assignment: Assignment): void {
    const { member } = assignment;
    if (member !== undefined) this.#doubt(member.clientId, assignment);
  }

  liveReturned(message: Ttv, sent: boolean): void {
    if (this.#connected.length === 0) {
      this.#context.counters.groupMessagesDropped++;
      return;
    }
    this.#context.counters.groupMessagesReturned++;
    this.#returned.addLive(message, sent);
    this.ready();
  }

  #doubt(clientId: string, assignment: Assignment): void {
    const unsure = this.#unsure.get(clientId);
    if (unsure === undefined) this.#unsure.set(clientId, [assignment]);
    else unsure.push(assignment);
  }

  // -------------------------------------------------------------- going on

  /** Once per turn, however many members got room. */
  ready(): void {
    if (this.#pumpScheduled || this.#closed) return;
    this.#pumpScheduled = true;
    this.#context.clock.soon(() => {
      this.#pumpScheduled = false;
      if (!this.#closed) this.#pump();
    });
  }

  #pump(): void {
    while (this.#connected.length > 0) {
      const next = this.#returned.take();
      if (next === undefined) break;
      if (this.#dealReturned(next)) continue;
      this.#returned.putBack(next);
      return;
    }
    if (this.#returned.size > 0) return;
    this.#stored?.wake();
    this.#endIfOver();
  }

  /** True: it is dealt with. */
  #dealReturned({ message, assignment, sent }: NextReturned): boolean {
    const { clock, counters } = this.#context;
    if (isExpired(message, clock.wallUs())) {
      counters.expiredDropped++;
      assignment?.done();
      return true;
    }
    const outcome =
      assignment === undefined
        ? this.#dealLive(message, sent)
        : this.#dealStored(message, assignment, false);
    return outcome !== "wait";
  }

  #endIfOver(): void {
    const store = this.#stored;
    if (this.#closed || this.#durableMembers.size > 0) return;
    if (store !== undefined) {
      const mayBeDealt = this.#connected.length > 0;
      if (mayBeDealt && !(store.isDrained && this.#returned.size === 0)) return;
      this.#end(store);
    }
    if (this.#connected.length === 0) this.#onEmpty(this);
  }

  #end(store: GroupStore): void {
    const { logger, counters } = this.#context;
    store.close();
    this.#stored = undefined;
    this.#passed = new Map(store.cursor);
    counters.groupMessagesDropped += this.#returned.clear();
    this.#unsure.clear();
    this.#context.store.interest.remove(this.filter);
    this.#ending = this.#created
      .then(() => store.remove())
      .catch((error: CodedError) => {
        // Found and removed by whoever makes the group again, or by the next start.
        logger.warn("session.group_not_removed", { group: this.clientId, error });
      });
  }

  /** At the end of the broker. REQUIRES: no member is connected. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    const store = this.#stored;
    store?.close();
    await this.#ending;
    await store?.writeExact();
  }
}

class LiveDealt implements Dealt {
  readonly waitsForGroup = false;
  readonly #group: SharedGroup;
  /** Fills a kept copy only when it is needed, since most are acked. */
  readonly #message: Ttv;

  constructor(group: SharedGroup, message: Ttv) {
    this.#group = group;
    this.#message = message.qos === 0 ? message : keepMessage(message);
  }

  done(): void {
    // Nothing was kept.
  }

  bound(then: () => void): void {
    then();
  }

  back(sent: boolean): void {
    this.#group.liveReturned(this.#message, sent);
  }

  unsure(): void {
    // A live group has no members that write records.
  }
}
