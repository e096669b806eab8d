// The oracle of delivery tests. Publishers number their messages per topic; the test tells the oracle
// what was sent, what was acked and what each session received. From that it says what is wrong:
//
// - loss: an acked message that a session with a matching subscription never received;
// - duplicates: at QoS 2 any; at QoS 1 a repeat that is neither a resend (DUP set, on a later
//   connection) nor explained by the publisher having sent the message again itself;
// - order: a PUBLISH that first arrived behind a later message of the same publisher, over all topics
//   at QoS 1 and 2, per topic at QoS 0;
// - unexpected: a message that nobody sent, or that reached a session at a higher QoS.
//
// Sent and not acked is owed nothing: it may come or not. Times are monotonic nanoseconds.

export type MessageName = {
  readonly publisher: string;
  readonly topic: string;
  /** From 1, without gaps, per publisher and topic. */
  readonly sequence: number;
};

export type Receipt = MessageName & {
  readonly session: string;
  readonly qos: number;
  readonly dup: boolean;
  readonly packetId: number | undefined;
  /** Counts the session's connections, from 1. */
  readonly connection: number;
  readonly atNs: bigint;
  /** Place of its PUBLISH among all that the session got, where receipts are told out of that order. */
  readonly arrival?: number;
};

type Sent = MessageName & {
  readonly qos: number;
  /** Place among the publisher's messages. */
  readonly order: number;
  times: number;
  readonly sentAtNs: bigint;
  ackedAtNs: bigint | undefined;
};

type Session = {
  readonly name: string;
  readonly wants: (topic: string) => boolean;
  readonly qos: number;
  receipts: Receipt[];
  readonly got: Set<string>;
  /** Acked and not received yet, by key. */
  readonly owed: Map<string, Sent>;
};

export type OracleFault = {
  readonly kind: "loss" | "duplicate" | "order" | "unexpected";
  readonly text: string;
};

export type Repeat = {
  readonly first: Receipt;
  readonly again: Receipt;
  /** Whether the publisher sent the message as often as this session has got it by then. */
  readonly isExplainedByPublisher: boolean;
};

export type OracleReport = {
  readonly faults: readonly OracleFault[];
  readonly sent: number;
  readonly acked: number;
  readonly received: number;
  /** Allowed repeats at QoS 1, for tests that bound them. */
  readonly repeats: readonly Repeat[];
};

const payloadHead = "fs1";

/** The payload that carries a message's name, padded with dots to `sizeBytes`. */
export function formatPayload(message: MessageName, sizeBytes = 0): string {
  const { publisher, topic, sequence } = message;
  return `${payloadHead} ${publisher} ${topic} ${sequence} `.padEnd(sizeBytes, ".");
}

/** The name in a payload; undefined when it was not made by `formatPayload`. */
export function parsePayload(payload: Uint8Array | string): MessageName | undefined {
  const text = typeof payload === "string" ? payload : Buffer.from(payload).toString("utf8");
  const match = /^fs1 (\S+) (\S+) (\d+) \.*$/.exec(text);
  if (match === null) return undefined;
  const [, publisher, topic, sequence] = match;
  return { publisher: publisher as string, topic: topic as string, sequence: Number(sequence) };
}

export class DeliveryOracle {
  readonly #sent = new Map<string, Sent>();
  readonly #sessions = new Map<string, Session>();
  readonly #strangers: OracleFault[] = [];
  readonly #lastSequence = new Map<string, number>();

  #forgotten = { sent: 0, acked: 0, received: 0 };

  /** A session that must get every message whose topic it wants, at most at `qos`. */
  addSession(name: string, qos: number, wants: (topic: string) => boolean): void {
    const session = { name, wants, qos, receipts: [], got: new Set<string>(), owed: new Map() };
    this.#sessions.set(name, session);
    for (const entry of this.#sent.values()) owe(session, entry);
  }

  /** The next name for a publisher and topic. */
  nextMessage(publisher: string, topic: string): MessageName {
    const key = `${publisher} ${topic}`;
    const sequence = (this.#lastSequence.get(key) ?? 0) + 1;
    this.#lastSequence.set(key, sequence);
    return { publisher, topic, sequence };
  }

  /** Call it before each attempt to send, also for a repeat by the publisher. */
  sent(message: MessageName, qos: number, atNs = process.hrtime.bigint()): void {
    const known = this.#sent.get(keyOf(message));
    if (known !== undefined) known.times++;
    else {
      const order = this.#sent.size + this.#forgotten.sent;
      const entry = { ...message, qos, order, times: 1, sentAtNs: atNs, ackedAtNs: undefined };
      this.#sent.set(keyOf(message), entry);
    }
  }

  /** Call it when PUBACK or PUBCOMP has arrived. */
  acked(message: MessageName, atNs = process.hrtime.bigint()): void {
    const known = this.#sent.get(keyOf(message));
    if (known === undefined) throw new Error(`acked without being sent: ${formatName(message)}`);
    known.ackedAtNs ??= atNs;
    for (const session of this.#sessions.values()) owe(session, known);
  }

  received(receipt: Receipt): void {
    const { receipts, got, owed } = this.#session(receipt.session);
    receipts.push(receipt);
    got.add(keyOf(receipt));
    owed.delete(keyOf(receipt));
  }

  /** A packet that carries no name of ours, or must not come at all. */
  stranger(session: string, text: string): void {
    this.#strangers.push({ kind: "unexpected", text: `${session}: ${text}` });
  }

  /**
   * Forgets what was sent before a moment and is owed to nobody, so that long runs cost no more than
   * short ones. It still counts as sent, acked and received; should it come again, it is unexpected.
   */
  forget(sentBeforeNs: bigint): void {
    const sessions = [...this.#sessions.values()];
    for (const [key, { sentAtNs, ackedAtNs }] of this.#sent) {
      if (sentAtNs >= sentBeforeNs || ackedAtNs === undefined) continue;
      if (sessions.some(({ owed }) => owed.has(key))) continue;
      this.#sent.delete(key);
      this.#forgotten.sent++;
      this.#forgotten.acked++;
      for (const { got } of sessions) got.delete(key);
    }
    for (const session of sessions) {
      const kept = session.receipts.filter((receipt) => this.#sent.has(keyOf(receipt)));
      this.#forgotten.received += session.receipts.length - kept.length;
      session.receipts = kept;
    }
  }

  get ackedCount(): number {
    let count = this.#forgotten.acked;
    for (const entry of this.#sent.values()) if (entry.ackedAtNs !== undefined) count++;
    return count;
  }

  /** The same messages, sent and acked, before any session received one. */
  withoutReceipts(): DeliveryOracle {
    const copy = new DeliveryOracle();
    for (const [key, entry] of this.#sent) copy.#sent.set(key, { ...entry });
    for (const [key, sequence] of this.#lastSequence) copy.#lastSequence.set(key, sequence);
    for (const { name, qos, wants } of this.#sessions.values()) copy.addSession(name, qos, wants);
    return copy;
  }

  /** Forgets a session: nothing is owed to it any more. */
  removeSession(name: string): void {
    this.#sessions.delete(name);
  }

  /** Acked messages that the session wants and has not received yet. */
  missing(session: string, ackedBeforeNs = 2n ** 63n): MessageName[] {
    return [...this.#session(session).owed.values()].filter(
      ({ ackedAtNs }) => ackedAtNs !== undefined && ackedAtNs < ackedBeforeNs,
    );
  }

  /** With `ackedBeforeNs` only what was acked before that moment is owed. */
  check(ackedBeforeNs = 2n ** 63n): OracleReport {
    const faults: OracleFault[] = [...this.#strangers];
    const repeats: Repeat[] = [];
    let received = this.#forgotten.received;
    for (const session of this.#sessions.values()) {
      received += session.receipts.length;
      for (const message of this.missing(session.name, ackedBeforeNs)) {
        const text = `${session.name} never got ${formatName(message)}, which was acked`;
        faults.push({ kind: "loss", text });
      }
      this.#checkReceipts(session, faults, repeats);
    }
    const sent = this.#sent.size + this.#forgotten.sent;
    return { faults, repeats, sent, acked: this.ackedCount, received };
  }

  #checkReceipts(session: Session, faults: OracleFault[], repeats: Repeat[]): void {
    const copies = new Map<string, Receipt[]>();
    const firsts: Receipt[] = [];
    for (const receipt of session.receipts) {
      const said = () => `${session.name} got ${formatReceipt(receipt)}`;
      const key = keyOf(receipt);
      const sent = this.#sent.get(key);
      if (sent === undefined || !session.wants(receipt.topic)) {
        const why =
          sent === undefined ? "which nobody sent, or long ago" : "which it does not want";
        faults.push({ kind: "unexpected", text: `${said()}, ${why}` });
        continue;
      }
      const qosMax = Math.min(sent.qos, session.qos);
      if (receipt.qos > qosMax) {
        faults.push({ kind: "unexpected", text: `${said()}; at most QoS ${qosMax} is right` });
      }
      const earlier = copies.get(key) ?? [];
      copies.set(key, [...earlier, receipt]);
      if (earlier.length > 0) {
        const why = repeatFault(receipt, earlier, sent.times);
        if (why === undefined) {
          const isExplainedByPublisher = earlier.length < sent.times;
          repeats.push({ first: earlier[0] as Receipt, again: receipt, isExplainedByPublisher });
        } else faults.push({ kind: "duplicate", text: `${said()} again: ${why}` });
        continue;
      }
      firsts.push(receipt);
    }
    this.#checkOrder(session, firsts, faults);
  }

  #checkOrder(session: Session, firsts: readonly Receipt[], faults: OracleFault[]): void {
    const arrived = firsts.map((receipt, index) => ({ receipt, at: receipt.arrival ?? index }));
    arrived.sort((a, b) => a.at - b.at);
    const last = new Map<string, Sent>();
    for (const { receipt } of arrived) {
      const sent = this.#sent.get(keyOf(receipt)) as Sent;
      const lane = `${receipt.publisher} ${sent.qos === 0 ? receipt.topic : ""}`;
      const before = last.get(lane);
      if (before === undefined || before.order < sent.order) last.set(lane, sent);
      else {
        const text = `${session.name} got ${formatReceipt(receipt)} behind ${formatName(before)}`;
        faults.push({ kind: "order", text });
      }
    }
  }

  #session(name: string): Session {
    const session = this.#sessions.get(name);
    if (session === undefined) throw new Error(`the oracle knows no session ${name}`);
    return session;
  }
}

function owe(session: Session, entry: Sent): void {
  if (entry.ackedAtNs === undefined || entry.qos === 0 || !session.wants(entry.topic)) return;
  const key = keyOf(entry);
  if (!session.got.has(key)) session.owed.set(key, entry);
}

/** Why a repeat is a fault; undefined when it is allowed. */
function repeatFault(receipt: Receipt, earlier: readonly Receipt[], timesSent: number) {
  if (receipt.qos === 0) return "QoS 0 is sent once";
  if (receipt.qos === 2) return "QoS 2 is delivered exactly once";
  if (receipt.dup) {
    const before = earlier.some((other) => other.connection < receipt.connection);
    // A publisher's second sending may carry DUP too: what a crash may have sent does.
    return before || earlier.length < timesSent ? undefined : "resent on the same connection";
  }
  const fresh = earlier.filter((other) => !other.dup).length;
  return fresh < timesSent ? undefined : "DUP is not set";
}

/** Throws with counts and the first faults of each kind, when there are any. */
export function assertNoFaults(report: OracleReport, context = ""): void {
  if (report.faults.length === 0) return;
  throw new Error(`${context}${context === "" ? "" : "\n"}${formatReport(report)}`);
}

export function formatReport(report: OracleReport): string {
  const lines = [`${report.sent} sent, ${report.acked} acked, ${report.received} received`];
  for (const kind of ["loss", "duplicate", "order", "unexpected"] as const) {
    const found = report.faults.filter((fault) => fault.kind === kind);
    lines.push(`${kind}: ${found.length}`);
    for (const fault of found.slice(0, 5)) lines.push(`  ${fault.text}`);
    if (found.length > 5) lines.push(`  and ${found.length - 5} more`);
  }
  return lines.join("\n");
}

function keyOf(message: MessageName): string {
  return `${message.publisher} ${message.topic} ${message.sequence}`;
}

export function formatName(message: MessageName): string {
  return `${message.topic} number ${message.sequence} of ${message.publisher}`;
}

function formatReceipt(receipt: Receipt): string {
  const { qos, dup, packetId, connection } = receipt;
  const id = packetId === undefined ? "" : ` id ${packetId}`;
  return `${formatName(receipt)} (QoS ${qos}${dup ? " DUP" : ""}${id}, connection ${connection})`;
}
