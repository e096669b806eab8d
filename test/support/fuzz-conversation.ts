// One case of the connection's fuzzing: a client that says anything in any state, cut anywhere, and
// an owner that answers late, out of order or not at all. What must hold whatever comes:
//
// - nothing throws, the end is told once, nothing is told or sent behind it;
// - what is sent are packets of a server within the client's limits: one CONNACK first (AUTH may
//   come before), nothing behind a refusal or DISCONNECT;
// - acks leave in the order of what they answer, and no more are owed than Receive Maximum;
// - the same bytes cut in other places tell and send the same.

import { SeededRandom } from "../../src/base/index.ts";
import {
  ChunkPool,
  type ConnectionEnd,
  createFrame,
  type DecodeContext,
  decodeContextDefault,
  decodePacket,
  noProperties,
  OutputBuffer,
  type Packet,
  PacketFramer,
  ServerConnection,
  type ServerConnectionSettings,
  serverConnectionSettingsDefault,
} from "../../src/mqtt/index.ts";
import { PacketFuzz, type PacketKind } from "./fuzz-packets.ts";

type Step =
  | { readonly do: "say"; readonly bytes: Buffer; readonly cut: number }
  | { readonly do: "wait"; readonly ms: number }
  | { readonly do: "act"; readonly draw: number };

export type ConversationCounts = Record<string, number>;

const stepsMax = 24;
const receiveMaximum = 4;

function settingsOf(random: SeededRandom): ServerConnectionSettings {
  return {
    ...serverConnectionSettingsDefault,
    maxPacketSize: 2000,
    preAuthPacketBytesMax: 1000,
    heldBytesMax: 3000,
    receiveMaximum,
    topicAliasMaximum: 2,
    topicAliasMaximumOut: 2,
    userPropertiesMax: 3,
    topicLevelsMax: 4,
    filtersMax: 3,
    keepAliveMaxS: random.pick([0, 5]),
    maximumQos: random.chance(0.9) ? 2 : 1,
    retainAvailable: random.chance(0.9),
  };
}

/** Runs the case of a seed; counts what it met. Throws what does not hold. */
export function runConversation(seed: number, counts: ConversationCounts): void {
  const random = new SeededRandom(seed);
  const fuzz = new PacketFuzz(random);
  fuzz.faultChance = random.pick([0, 0.002, 0.02]);
  const version = random.chance(0.7) ? 5 : 4;
  if (version === 5 && random.chance(0.2)) fuzz.authenticationMethod = "m";
  const settings = settingsOf(random);
  const steps = drawSteps(fuzz, version);
  const owner = random.next32();
  const talk = new Talk(settings, owner, counts);
  talk.run(steps, "as drawn");
  const again = new Talk(settings, owner, {});
  again.run(steps, "byte by byte");
  if (talk.told.join("\n") !== again.told.join("\n")) {
    throw new Error(`cut elsewhere:\n${again.told.join("\n")}\nnot\n${talk.told.join("\n")}`);
  }
}

function drawSteps(fuzz: PacketFuzz, version: 4 | 5): Step[] {
  const { random } = fuzz;
  const steps: Step[] = [];
  const say = (bytes: Buffer): void => {
    steps.push({ do: "say", bytes, cut: random.below(bytes.length + 1) });
  };
  if (random.chance(0.97)) say(fuzz.packet("connect", version));
  const count = random.below(stepsMax);
  for (let n = 0; n < count; n++) {
    const draw = random.below(100);
    if (draw < 60) {
      const packets = Array.from({ length: 1 + random.below(3) }, () =>
        fuzz.packet(random.chance(0.98) ? usualKind(fuzz) : fuzz.anyKind(), version),
      );
      const bytes = Buffer.concat(packets);
      say(random.chance(fuzz.faultChance * 4) ? fuzz.damage(bytes) : bytes);
    } else if (draw < 90) {
      steps.push({ do: "act", draw: random.next32() });
    } else {
      steps.push({ do: "wait", ms: random.pick([1, 400, 3000, 11_000]) });
    }
  }
  return steps;
}

const usual = ["publish", "publish", "publish", "pubrel", "puback", "pubrec", "pubcomp"] as const;
const others = ["subscribe", "unsubscribe", "pingreq"] as const;

function usualKind(fuzz: PacketFuzz): PacketKind {
  const { random } = fuzz;
  if (random.chance(0.02)) return "disconnect";
  if (fuzz.authenticationMethod !== undefined && random.chance(0.2)) return "auth";
  return random.chance(0.7) ? random.pick(usual) : random.pick(others);
}

class Talk {
  /** Everything told to the owner and sent to the client, in order. */
  readonly told: string[] = [];
  readonly #counts: ConversationCounts;
  readonly #owner: number;
  readonly #output: OutputBuffer;
  readonly #connection: ServerConnection;
  readonly #framer: PacketFramer;
  readonly #tokens: Array<{ readonly token: number; readonly what: string }> = [];
  /** Acks that are owed, in the order of what they answer: `puback 3`. */
  readonly #owed: string[] = [];
  readonly #subscribes: Array<
    readonly [packetId: number, filters: number, isUnsubscribe: boolean]
  > = [];
  #context: DecodeContext = { ...decodeContextDefault, sender: "server" };
  #sentSizeMax = Number.POSITIVE_INFINITY;
  #nowMs = 1000;
  #connacks = 0;
  #end: ConnectionEnd | undefined;
  #isSilent = false;

  constructor(settings: ServerConnectionSettings, owner: number, counts: ConversationCounts) {
    this.#owner = owner;
    this.#counts = counts;
    this.#output = new OutputBuffer(new ChunkPool(), () => undefined);
    this.#framer = new PacketFramer(1 << 28, {
      onFrame: (bytes, start, bodyStart, end) => {
        // A CONNECT that could not be read is answered in the form of its level.
        const isOld = (bytes[start] as number) === 0x20 && end - start === 4;
        const context = isOld ? { ...this.#context, version: 4 as const } : this.#context;
        this.#sent(decodePacket(bytes, start, bodyStart, end, context), end - start);
        return true;
      },
      onHeader: () => undefined,
      onFault: (error) => {
        throw error;
      },
    });
    this.#connection = new ServerConnection(
      settings,
      {
        onConnect: (packet) => {
          this.#tell(`connect ${packet.clientId}`);
          this.#context = { ...this.#context, version: packet.level === 5 ? 5 : 4 };
          this.#sentSizeMax = packet.properties.maximumPacketSize ?? Number.POSITIVE_INFINITY;
          if (this.#owner % 4 > 0) this.#decide();
        },
        onPublish: (publish, token) => {
          this.#tell(`publish ${publish.topic} ${publish.payloadLength} q${publish.qos}`);
          publish.decodeProperties();
          if (publish.topic === "") throw new Error("a publish without topic");
          if (token > 0)
            this.#owes(publish.qos === 1 ? "puback" : "pubrec", publish.packetId, token);
        },
        onPuback: (id, code) => this.#tell(`puback ${id} ${code}`),
        onPubrec: (id, code) => {
          this.#tell(`pubrec ${id} ${code}`);
          if (code < 0x80) this.#connection.sendPubrel(id);
        },
        onPubrel: (id, code, token) => {
          this.#tell(`pubrel ${id} ${code}`);
          this.#owes("pubcomp", id, token);
        },
        onPubcomp: (id, code) => this.#tell(`pubcomp ${id} ${code}`),
        onSubscribe: ({ packetId, filters }) => {
          this.#tell(`subscribe ${packetId} ${filters.map(({ text }) => text).join(" ")}`);
          this.#subscribes.push([packetId, filters.length, false]);
        },
        onUnsubscribe: ({ packetId, filters }) => {
          this.#tell(`unsubscribe ${packetId} ${filters.map(({ text }) => text).join(" ")}`);
          this.#subscribes.push([packetId, filters.length, true]);
        },
        onAuth: ({ reasonCode }) => {
          this.#tell(`auth ${reasonCode}`);
          if (this.#connection.state === "deciding") this.#decide();
          else this.#connection.sendAuth(reasonCode === 0x19 ? 0x18 : 0, noProperties);
        },
        onEnd: (end) => {
          if (this.#end !== undefined) throw new Error("two ends");
          this.#end = end;
          this.#note(`end ${end.cause} ${end.publishWill} ${end.sessionExpiryS}`);
          this.#count(`end ${end.cause}`);
        },
      },
      this.#output,
      this.#nowMs,
    );
  }

  run(steps: readonly Step[], cutting: "as drawn" | "byte by byte"): void {
    for (const step of steps) {
      if (step.do === "say") this.#say(step.bytes, step.cut, cutting);
      else if (step.do === "wait") this.#wait(step.ms);
      else this.#act(step.draw);
      this.#drain();
    }
    this.#connection.transportClosed();
    this.#drain();
    if (this.#end === undefined) throw new Error("no end");
  }

  #say(bytes: Buffer, cut: number, cutting: "as drawn" | "byte by byte"): void {
    const ends =
      cutting === "as drawn" ? [cut, bytes.length] : [...bytes.keys()].map((at) => at + 1);
    let from = 0;
    for (const to of ends) {
      // The buffer of a read is used again for the next one.
      const chunk = Buffer.from(bytes.subarray(from, to));
      this.#connection.receive(chunk, this.#nowMs);
      chunk.fill(0xee);
      from = to;
    }
  }

  #wait(ms: number): void {
    this.#nowMs += ms;
    this.#connection.tick(this.#nowMs);
    const { deadlineMs } = this.#connection;
    if (deadlineMs !== undefined && deadlineMs <= this.#nowMs) throw new Error("a deadline passed");
  }

  #decide(): void {
    const { connectPacket } = this.#connection;
    const hasMethod = connectPacket.properties.authenticationMethod !== undefined;
    const draw = this.#owner % 16;
    if (hasMethod && draw < 8) this.#connection.sendAuth(0x18, noProperties);
    else if (draw === 15) this.#connection.refuseConnect(0x87, noProperties);
    else this.#connection.acceptConnect({ sessionPresent: false }, this.#nowMs);
    this.#count("decided");
  }

  /** Something that an owner may do now. */
  #act(draw: number): void {
    const connection = this.#connection;
    const { state } = connection;
    const choice = draw % 16;
    if (state === "deciding") {
      if (choice < 12) connection.acceptConnect({ sessionPresent: false }, this.#nowMs);
      else connection.refuseConnect(0x88);
    } else if (choice < 7) {
      const [owed] = this.#tokens.splice(draw % Math.max(1, this.#tokens.length), 1);
      if (owed === undefined) return;
      // A repeat of a QoS 2 message is answered like the first: not refused here.
      const failures: Record<string, number> = { pubcomp: 0x92, puback: 0x97 };
      connection.completeAck(owed.token, draw % 5 === 0 ? (failures[owed.what] ?? 0) : 0);
    } else if (choice < 10) {
      const asked = this.#subscribes.shift();
      if (asked === undefined) return;
      const [packetId, filters, isUnsubscribe] = asked;
      const codes = new Array(filters).fill(draw % 3 === 0 ? 0x87 : 0);
      if (isUnsubscribe) connection.unsuback(packetId, codes);
      else connection.suback(packetId, codes);
    } else if (choice < 13 && state === "connected") {
      this.#deliver(draw);
    } else if (choice === 13) {
      connection.pauseKeepAlive(this.#nowMs);
    } else if (choice === 14) {
      connection.resumeKeepAlive(this.#nowMs);
    } else if (draw % 7 === 0) {
      connection.disconnect(0x8e);
    }
  }

  #deliver(draw: number): void {
    const qos = (draw % 3) as 0 | 1 | 2;
    const topic = ["a", "a/b", "c"][(draw >>> 4) % 3] as string;
    const payload = Buffer.alloc((draw >>> 8) % 60, "x");
    const frame = createFrame({ topic, payload, qos, retain: false, properties: noProperties });
    const packetId = qos > 0 ? 1 + (draw % 5) : 0;
    const result = this.#connection.sendPublish(frame, {
      qos,
      dup: false,
      retain: false,
      packetId,
    });
    this.#note(`deliver ${result}`);
  }

  #owes(what: string, packetId: number, token: number): void {
    this.#tokens.push({ token, what });
    this.#owed.push(`${what} ${packetId}`);
    // Repeats of an open QoS 2 exchange take no slot, PUBREL none either.
    const open = new Set(this.#owed.filter((each) => !each.startsWith("pubcomp")));
    if (this.#context.version === 5 && open.size > receiveMaximum) {
      throw new Error(`${open.size} owed: ${[...open].join()}`);
    }
  }

  #tell(text: string): void {
    if (this.#end !== undefined) throw new Error(`told behind the end: ${text}`);
    this.#note(text);
    this.#count(text.split(" ")[0] as string);
  }

  #note(text: string): void {
    this.told.push(text);
  }

  #count(what: string): void {
    this.#counts[what] = (this.#counts[what] ?? 0) + 1;
  }

  #drain(): void {
    this.#output.drain((bytes) => this.#framer.push(Buffer.from(bytes)));
    if (this.#framer.pendingBytes > 0) throw new Error("half a packet was sent");
  }

  #sent(packet: Packet, sizeBytes: number): void {
    const code = "reasonCode" in packet ? packet.reasonCode : 0;
    this.#count(`sent ${packet.type}`);
    // Words of a refusal may differ where a packet was cut: the header alone was bad.
    this.#note(`sent ${packet.type} ${packet.type === "disconnect" ? "" : code}`);
    if (this.#isSilent) throw new Error(`${packet.type} behind the last word`);
    if (sizeBytes > this.#sentSizeMax) throw new Error(`${sizeBytes} bytes for a small client`);
    if (packet.type === "connack") this.#connacks++;
    else if (this.#connacks === 0 && packet.type !== "auth") {
      throw new Error(`${packet.type} before CONNACK`);
    }
    if (this.#connacks > 1) throw new Error("two CONNACKs");
    this.#isSilent =
      packet.type === "disconnect" || (packet.type === "connack" && packet.reasonCode !== 0);
    if (packet.type === "puback" || packet.type === "pubrec" || packet.type === "pubcomp") {
      const next = this.#owed.shift();
      const ack = `${packet.type} ${packet.packetId}`;
      if (next !== ack) throw new Error(`${ack} where ${next} was owed`);
    }
  }
}
