// The publishes of one client, from its packets to their acks and fan-out, in the order they came.
//
// Invariants
// - Effects (ack first, then live fan-out) happen in order of arrival: what needs no write waits
//   behind what does. With nothing under way they happen at once and nothing is copied.
// - A message that cannot be stored now is held back, and everything behind it with it, until the
//   store takes writes again or `publishWaitMs` have passed; then it is refused. QoS 0 waits for a
//   store that is only busy; otherwise it goes unstored, and is counted.
// - Where other nodes take subscriptions too, what is not surely wanted, and what is retained, is
//   decided before it is written (`PublishPath.decide`), and what came behind is written behind it.
// - `blocked` says that the client must not be read: something is held, or its publishes that are
//   under way are too many or too large.
// What was given to the store goes on when the connection ends; what was only held is dropped.

import type { Cancel, CodedError } from "../base/index.ts";
import {
  type AckToken,
  canonicalFrame,
  forwardableFrame,
  type InboundPublish,
  type PublishRun,
  reason,
} from "../mqtt/index.ts";
import type { AppendOutcome } from "../store/index.ts";
import type { LiveMatch } from "./live-subscriptions.ts";
import type { PublishPlan, RecordDone } from "./publish-path.ts";
import {
  type Publish,
  type PublishOwner,
  type PublishQueueParts,
  type Release,
  type Step,
  writes,
} from "./publish-step.ts";
import { mayPass } from "./refusals.ts";

/** Pause before a write that failed is tried again, when the store does not say that it is closed. */
const retryMs = 100;

export class PublishQueue {
  readonly #owner: PublishOwner;
  readonly #parts: PublishQueueParts;
  #steps: Step[] = [];
  #bytes = 0;
  #heldCount = 0;
  #decidingCount = 0;
  #behindCount = 0;
  #isBlocked = false;
  #isEnded = false;
  #isClosed = false;
  #isDraining = false;
  #awaitsStore = false;
  /** The store takes no writes of this client since then. */
  #refusedSinceMs: number | undefined;
  #cancelDeadline: Cancel | undefined;
  #cancelWait: Cancel | undefined;
  #idleWaiters: Array<() => void> = [];

  constructor(owner: PublishOwner, parts: PublishQueueParts) {
    this.#owner = owner;
    this.#parts = parts;
    parts.path.register(owner.client.clientId, this);
  }

  get blocked(): boolean {
    return this.#isBlocked;
  }

  /** REQUIRES: rights were checked. */
  publish(inbound: InboundPublish, token: AckToken): void {
    const { path, inbox } = this.#parts;
    const { qos, packetId } = inbound;
    const isRepeat = qos === 2 && inbox.take(packetId) === "repeat";
    const evidence = qos === 2 ? inbox.evidenceOf(packetId) : undefined;
    let plan: PublishPlan | undefined;
    if (isRepeat) {
      // The store decides, and answers when what it knows is durable.
      if (evidence !== undefined) plan = { retained: undefined, append: { keep: true, evidence } };
    } else {
      const wanted = path.planOf(inbound, inbound.payloadLength === 0, evidence);
      plan = this.#storable(inbound, wanted);
    }
    if (plan === undefined && this.#steps.length === 0) {
      this.#publishNow(inbound, token, isRepeat);
      if (path.isCrowded) this.#update();
      return;
    }
    const message = path.messageOf(inbound, canonicalFrame(inbound), this.#owner.client.clientId);
    this.#add({
      kind: "publish",
      token,
      packetId,
      sizeBytes: message.frame.length,
      message,
      plan,
      isDecided: false,
      state: plan === undefined ? "done" : "held",
      isRepeat,
      error: undefined,
    });
  }

  /** Nothing stands before a run, and nobody wants to be told of each message. */
  get takesRuns(): boolean {
    return this.#steps.length === 0 && this.#parts.published === undefined;
  }

  /**
   * A run that needs no write: acked and fanned out at once. False: nothing was done, each has to come
   * by itself. REQUIRES: `takesRuns`, and as `publish`.
   */
  publishRun(run: PublishRun): boolean {
    const { path, counters } = this.#parts;
    const topic = run.topic.text;
    if (path.isWanted(topic, run.qos) || path.isUnsure(run.qos)) return false;
    const matches = path.match(topic);
    const isMatched = matches.length > 0;
    if (!isMatched) counters.publishesUnmatched += run.count;
    if (run.qos > 0) {
      this.#owner.ackRun(run, isMatched ? reason.success : reason.noMatchingSubscribers);
    }
    if (isMatched) path.deliverRun(matches, run, this.#owner.client.clientId);
    if (path.isCrowded) this.#update();
    return true;
  }

  /** PUBREL. */
  release(packetId: number, token: AckToken): void {
    const step: Release = {
      kind: "release",
      token,
      sizeBytes: 0,
      state: "writing",
      reasonCode: reason.success,
      error: undefined,
    };
    this.#steps.push(step);
    this.#parts.inbox.release(packetId, (error, code) => {
      step.reasonCode = code;
      step.error = error;
      step.state = error === undefined ? "done" : "refused";
      this.#drain();
    });
  }

  /** The connection has ended. */
  end(): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    for (const step of this.#steps) if (step.state === "held") this.#drop(step);
    this.#drain();
  }

  /** Resolves when nothing is under way. */
  idle(): Promise<void> {
    if (this.#steps.length === 0) return Promise.resolve();
    return new Promise((resolve) => this.#idleWaiters.push(resolve));
  }

  /** Other nodes take messages again. */
  roomAgain(): void {
    this.#update();
  }

  // -------------------------------------------------------------- in

  #storable(
    { qos, topic }: InboundPublish,
    plan: PublishPlan | undefined,
  ): PublishPlan | undefined {
    if (plan === undefined || qos > 0) return plan;
    const refusal = this.#parts.path.store.refusalOf(topic);
    if (refusal === undefined || refusal.kind === "retry") return plan;
    this.#parts.counters.qos0Unstored++;
    return undefined;
  }

  #mayWrite(step: Publish): boolean {
    if (this.#heldCount > 0) return false;
    return !writes(step) || this.#parts.path.store.refusalOf(step.message.topic) === undefined;
  }

  #publishNow(inbound: InboundPublish, token: AckToken, isRepeat: boolean): void {
    const { path } = this.#parts;
    if (isRepeat) {
      this.#parts.counters.publishesRepeated++;
      this.#owner.ack(token, reason.success);
      return;
    }
    const matches = path.match(inbound.topic);
    this.#acknowledge(token, matches, false);
    const { published } = this.#parts;
    if (matches.length === 0 && published === undefined) return;
    const frame = forwardableFrame(inbound);
    const message = path.messageOf(inbound, frame, this.#owner.client.clientId);
    path.deliver(matches, message, false);
    published?.(message);
  }

  #add(step: Publish): void {
    this.#steps.push(step);
    this.#bytes += step.sizeBytes;
    if (step.plan !== undefined) {
      if (this.#mayWrite(step)) {
        this.#write(step);
      } else {
        this.#hold(step);
        this.#awaitStore();
      }
    }
    this.#drain();
  }

  #write(step: Publish): void {
    const { path } = this.#parts;
    const plan = step.plan as PublishPlan;
    if (!step.isDecided && path.mustDecide(step.message, plan)) {
      this.#decide(step, plan);
    } else if (this.#decidingCount > 0 || this.#behindCount > 0) {
      step.state = "behind";
      this.#behindCount++;
    } else {
      this.#record(step, plan);
    }
  }

  #record(step: Publish, plan: PublishPlan): void {
    const { path } = this.#parts;
    step.state = "writing";
    const done: RecordDone = (error, outcome) => {
      this.#written(step, error, outcome);
      this.#drain();
    };
    if (step.isDecided && plan.append !== undefined) path.append(step.message, plan.append, done);
    else path.record(step.message, plan, done);
  }

  #decide(step: Publish, plan: PublishPlan): void {
    step.state = "deciding";
    this.#decidingCount++;
    this.#parts.path.decide(step.message, plan, (error, decided) => {
      this.#decidingCount--;
      if (error !== undefined) {
        step.error = error;
        // Its time is over: whoever asks was told after the whole wait.
        step.state = error.code === "BROKER_NO_QUORUM" ? "refused" : "failed";
      } else {
        step.plan = decided;
        step.isDecided = true;
        step.state = "behind";
        this.#behindCount++;
      }
      this.#drain();
    });
  }

  /** Writes what waited for a decision, up to the next. True: there may be something to settle. */
  #goOn(): boolean {
    let moved = false;
    // Over a copy: what the store answers at once leaves the queue while we go through it.
    for (const step of [...this.#steps]) {
      if (step.kind !== "publish") continue;
      const { state, plan } = step;
      if (state === "deciding" || state === "held" || state === "failed") break;
      if (state !== "behind") continue;
      this.#behindCount--;
      moved = true;
      if (plan?.append === undefined && step.isDecided) step.state = "done";
      else if (this.#mayWrite(step)) this.#record(step, plan as PublishPlan);
      else {
        this.#hold(step);
        this.#awaitStore();
        break;
      }
    }
    return moved;
  }

  #written(step: Publish, error: CodedError | undefined, outcome: AppendOutcome | undefined): void {
    if (error === undefined) {
      this.#refusedSinceMs = undefined;
      step.state = "done";
      step.isRepeat = outcome?.kind === "repeat";
      return;
    }
    step.error = error;
    if (outcome?.kind !== "stored") {
      step.state = "failed";
      return;
    }
    // Stored, but its retained write failed: it cannot be tried again, and the evidence must go
    // before the client is told, or its next message under this id would be taken for this one.
    if (step.plan?.append?.evidence === undefined) {
      step.state = "refused";
      return;
    }
    this.#parts.inbox.release(step.packetId, () => {
      step.state = "refused";
      this.#drain();
    });
  }

  // -------------------------------------------------------------- out, in order

  #drain(): void {
    if (this.#isDraining) return;
    this.#isDraining = true;
    let settled = 0;
    try {
      while (settled < this.#steps.length && this.#settle(this.#steps[settled] as Step)) {
        this.#bytes -= (this.#steps[settled] as Step).sizeBytes;
        settled++;
      }
    } finally {
      this.#isDraining = false;
      if (settled > 0) this.#steps.splice(0, settled);
    }
    if (this.#behindCount > 0 && this.#goOn()) {
      this.#drain();
      return;
    }
    this.#update();
  }

  /** Finishes a step if it can be; true when it is done with. */
  #settle(step: Step): boolean {
    switch (step.state) {
      case "held":
      case "deciding":
      case "behind":
      case "writing":
        return false;
      case "dropped":
        return true;
      case "done":
        if (step.kind === "publish") this.#finish(step);
        else this.#owner.ack(step.token, step.reasonCode);
        return true;
      default:
        if (step.kind === "publish") return this.#settleFailed(step);
        this.#owner.releaseFailed(step.error as CodedError);
        return true;
    }
  }

  #finish(step: Publish): void {
    const { path, counters } = this.#parts;
    if (step.isRepeat) {
      counters.publishesRepeated++;
      this.#owner.ack(step.token, reason.success);
      return;
    }
    if (step.plan !== undefined) path.count(step.plan);
    const stored = step.plan?.append?.keep === true;
    const matches = path.match(step.message.topic);
    this.#acknowledge(step.token, matches, stored);
    path.deliver(matches, step.message, stored);
    this.#parts.published?.(step.message);
  }

  #acknowledge(token: AckToken, matches: readonly LiveMatch[], stored: boolean): void {
    const isWanted = stored || matches.length > 0;
    if (!isWanted) this.#parts.counters.publishesUnmatched++;
    if (token === 0) return;
    this.#owner.ack(token, isWanted ? reason.success : reason.noMatchingSubscribers);
  }

  // -------------------------------------------------------------- what cannot be stored

  /** False: it goes on later. */
  #settleFailed(step: Publish): boolean {
    if (step.state === "failed" && this.#mayTryAgain(step)) {
      if (this.#steps.some((other) => other.state === "writing")) return false;
      this.#holdAgain();
      return false;
    }
    // It stays among the steps as long as this drain goes on: it is not to be held with another.
    step.state = "refused";
    this.#refuse(step);
    return true;
  }

  /** Not when one behind it was stored meanwhile: that would turn their order round. */
  #mayTryAgain(step: Publish): boolean {
    if (this.#isEnded) return false;
    const isRefusing = this.#parts.path.store.refusalOf(step.message.topic) !== undefined;
    if (step.error === undefined || !mayPass(step.error, isRefusing)) return false;
    if (this.#restMs() <= 0) return false;
    // Those before it may be here still, as long as this drain goes on.
    const behind = this.#steps.slice(this.#steps.indexOf(step) + 1);
    return !behind.some(
      (other) => other.kind === "publish" && other.state === "done" && writes(other),
    );
  }

  #holdAgain(): void {
    for (const step of this.#steps) {
      if (step.kind === "publish" && step.state === "failed") this.#hold(step);
    }
    this.#awaitStore();
  }

  /**
   * The wait counts from when the store began to refuse: a client whose messages come one by one
   * must not wait anew for each.
   */
  #hold(step: Publish): void {
    this.#refusedSinceMs ??= this.#parts.clock.elapsedMs();
    step.state = "held";
    this.#heldCount++;
    this.#parts.counters.publishesHeld++;
  }

  #refuse(step: Publish): void {
    const { counters, inbox } = this.#parts;
    const { message, token, packetId, error } = step;
    if (message.qos === 0) {
      counters.qos0Unstored++;
      return;
    }
    if (message.qos === 2) inbox.forget(packetId);
    if (this.#isEnded) {
      counters.publishesAbandoned++;
      return;
    }
    counters.publishesRefused++;
    this.#owner.refuse(token, message.topic, error as CodedError);
  }

  #drop(step: Step): void {
    if (step.kind === "publish") {
      this.#heldCount--;
      this.#parts.counters.publishesAbandoned++;
      if (step.message.qos === 2) this.#parts.inbox.forget(step.packetId);
    }
    step.state = "dropped";
  }

  /** What is left of the wait. */
  #restMs(): number {
    const { clock, settings } = this.#parts;
    const nowMs = clock.elapsedMs();
    return (this.#refusedSinceMs ?? nowMs) + settings.publishWaitMs - nowMs;
  }

  /** For the first message that is held: those behind it wait for it in any case. */
  #awaitStore(): void {
    const { path, clock } = this.#parts;
    if (!this.#awaitsStore) {
      this.#awaitsStore = true;
      const topic = this.#firstHeld()?.message.topic ?? "";
      if (path.store.refusalOf(topic) === undefined) {
        this.#cancelWait = clock.schedule(retryMs, () => this.#resume());
      } else {
        this.#cancelWait = path.store.onceWritable(() => {
          this.#refusedSinceMs = undefined;
          this.#resume();
        }, topic);
      }
    }
    this.#cancelDeadline ??= clock.schedule(this.#restMs(), () => this.#refuseLate());
  }

  #firstHeld(): Publish | undefined {
    for (const step of this.#steps) {
      if (step.kind === "publish" && step.state === "held") return step;
    }
    return undefined;
  }

  /** The store takes writes again: what is held goes on, in order. */
  #resume(): void {
    this.#awaitsStore = false;
    this.#cancelWait?.();
    this.#cancelDeadline?.();
    this.#cancelDeadline = undefined;
    // Over a copy: what the store answers at once leaves the queue while we go through it.
    for (const step of [...this.#steps]) {
      if (step.kind !== "publish" || step.state !== "held") continue;
      if (this.#parts.path.store.refusalOf(step.message.topic) !== undefined) {
        this.#refusedSinceMs ??= this.#parts.clock.elapsedMs();
        this.#awaitStore();
      }
      // Also when one before it was sent back to wait: nothing overtakes it.
      if (this.#awaitsStore) break;
      this.#heldCount--;
      this.#write(step);
    }
    this.#drain();
  }

  #refuseLate(): void {
    this.#cancelDeadline = undefined;
    const refusal = this.#parts.path.store.refusalOf(this.#firstHeld()?.message.topic ?? "");
    if (refusal === undefined) {
      this.#resume();
      return;
    }
    for (const step of this.#steps) {
      if (step.kind !== "publish" || step.state !== "held") continue;
      this.#heldCount--;
      step.error = refusal;
      step.state = "refused";
      if (step.message.qos === 0) this.#leaveUnstored(step);
    }
    this.#drain();
  }

  /** It is still delivered to those who are connected. */
  #leaveUnstored(step: Publish): void {
    this.#parts.counters.qos0Unstored++;
    step.plan = undefined;
    step.state = "done";
  }

  // -------------------------------------------------------------- state

  #update(): void {
    const { settings, path } = this.#parts;
    const count = this.#steps.length;
    // Hysteresis: a client at the brim is not stopped and started for every message.
    const share = this.#isBlocked ? 0.5 : 1;
    const isBlocked =
      this.#heldCount > 0 ||
      path.isCrowded ||
      count > settings.publishesMax * share ||
      (count > 1 && this.#bytes > settings.publishBytesMax * share);
    if (count === 0) {
      for (const resolve of this.#idleWaiters.splice(0)) resolve();
    }
    if (isBlocked !== this.#isBlocked) {
      this.#isBlocked = isBlocked;
      this.#owner.blockedChanged();
    }
    if (count === 0 && this.#isEnded) this.#close();
  }

  #close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    const { path, inbox } = this.#parts;
    this.#cancelDeadline?.();
    this.#cancelDeadline = undefined;
    this.#cancelWait?.();
    path.unregister(this.#owner.client.clientId, this);
    inbox.close();
  }
}
