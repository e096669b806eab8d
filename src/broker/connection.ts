// One client's connection: between its transport, the protocol core, its session and its publishes.
//
// When the transport is read is decided in reading.ts. However it ends, once: what is queued is sent,
// the session is detached with the cause, and the transport goes within `lingerMs`.

import type { ByteConnection, Cancel, CodedError, ConnectionHandlers } from "../base/index.ts";
import {
  type AckToken,
  type AuthPacket,
  type ConnectionEnd,
  type ConnectPacket,
  type InboundPublish,
  type Properties,
  type PublishRun,
  type ReasonCode,
  reason,
  reasonName,
  ServerConnection,
  type ServerEvents,
  type SubscribeRequest,
  type UnsubscribeRequest,
} from "../mqtt/index.ts";
import type { ConnectRequest, DetachCause, Session } from "../session/index.ts";
import type { Client } from "./access.ts";
import type { ClientView } from "./clients.ts";
import {
  answerProperties,
  cappedExpiryS,
  clientIdFault,
  clientIdOf,
  connectRequestOf,
  willFault,
} from "./connect-path.ts";
import { noteTakeover, reportEnd } from "./connection-ends.ts";
import type { Admitted, ConnectionParts } from "./connection-parts.ts";
import { ConnectionTimers } from "./connection-timers.ts";
import {
  type ClientHooks,
  createClientHooks,
  type HookedConnection,
} from "./hooks/client-hooks.ts";
import type { Ticket } from "./limits/admission.ts";
import { deviceProfileOf } from "./limits/devices.ts";
import type { ListenerTerms } from "./listener-terms.ts";
import { Login, type LoginOutcome } from "./login.ts";
import { PublishQueue } from "./publish-queue.ts";
import type { PublishOwner } from "./publish-step.ts";
import { createMemoryInbox, openDurableInbox, type Qos2Inbox } from "./qos2-inbox.ts";
import { Reading, type ReadingOwner } from "./reading.ts";
import { connectReason, endReason, publishReason } from "./refusals.ts";
import { ClientLink } from "./session-link.ts";
import { SubscribePath } from "./subscribe-path.ts";
import { type AckPacket, ConnectionTap } from "./tap.ts";
import { waitFor } from "./waiting.ts";
import { ConnectionOutput } from "./write-path.ts";

export interface ConnectionOwner {
  /** Its session is let go; `done` when that is durable. */
  detaching(done: Promise<void>): void;
  closed(connection: ClientConnection): void;
}

type Opened = {
  readonly session: Session;
  readonly sessionPresent: boolean;
  readonly inbox: Qos2Inbox;
};

/** Of an accepted client. */
type Accepted = {
  readonly session: Session;
  readonly queue: PublishQueue;
  /** Before the queue, where there are hooks. */
  readonly publishes: Pick<PublishQueue, "publish" | "end" | "blocked">;
  readonly subscribes: Pick<SubscribePath, "subscribe" | "unsubscribe" | "blocked">;
  /** As sent: 3, 4 or 5. */
  readonly protocol: number;
  readonly connectedAtMs: number;
};

const nobody: Client = { clientId: "", user: undefined };

export class ClientConnection
  implements ConnectionHandlers, ServerEvents, PublishOwner, HookedConnection, ReadingOwner
{
  client: Client = nobody;
  readonly remote: string;
  readonly #parts: ConnectionParts;
  readonly #owner: ConnectionOwner;
  readonly #transport: ByteConnection;
  readonly #output: ConnectionOutput;
  readonly #core: ServerConnection;
  readonly #timers: ConnectionTimers;
  readonly #reading: Reading;
  readonly #terms: ListenerTerms;
  readonly #ticket: Ticket;
  readonly #tap: ConnectionTap;
  #accepted: Accepted | undefined;
  #login: Login | undefined;
  #hooks: ClientHooks | undefined;
  /** PUBLISHes since the last charge to the rates. */
  #published = 0;
  #isPaced = false;
  #isShuttingDown = false;
  #cancelLinger: Cancel | undefined;

  constructor(parts: ConnectionParts, owner: ConnectionOwner, admitted: Admitted) {
    const { settings, clock, turn } = parts;
    const { transport, terms, ticket } = admitted;
    this.#terms = terms;
    this.#ticket = ticket;
    this.#parts = parts;
    this.#owner = owner;
    this.#transport = transport;
    this.remote = transport.remote;
    this.#tap = new ConnectionTap(parts.tap, this);
    this.#output = new ConnectionOutput(turn, transport, settings.outboundBufferBytesMax, () =>
      this.#onRoom(),
    );
    const nowMs = clock.elapsedMs();
    const { buffer } = this.#output;
    this.#core = new ServerConnection(settings.mqtt, this, buffer, nowMs, parts.runs);
    this.#timers = new ConnectionTimers(clock, this.#core);
    const { counters } = parts;
    const { traffic } = ticket;
    const own = { core: this.#core, output: this.#output, timers: this.#timers };
    this.#reading = new Reading({ ...own, transport, traffic, clock, counters }, this);
    this.#timers.watch();
  }

  get isAccepted(): boolean {
    return this.#accepted !== undefined;
  }

  get memorySession(): Session | undefined {
    const session = this.hasEnded() ? undefined : this.#accepted?.session;
    return session?.durable === false ? session : undefined;
  }

  get isBlocked(): boolean {
    const accepted = this.#accepted;
    if (accepted === undefined) return false;
    const { queue, publishes, subscribes } = accepted;
    return queue.blocked || publishes.blocked || subscribes.blocked;
  }

  get isDurable(): boolean {
    return this.#accepted?.session.durable ?? false;
  }

  /** The broker stops. */
  shutDown(): void {
    this.#isShuttingDown = true;
    const { serverReference } = this.#parts.settings;
    if (serverReference !== "") {
      this.#core.disconnect(reason.useAnotherServer, { serverReference });
    } else if (this.#core.state === "deciding") {
      this.#core.refuseConnect(reason.serverUnavailable);
    } else {
      this.#core.disconnect(reason.serverShuttingDown);
    }
  }

  destroy(): void {
    this.#transport.destroy();
  }

  /** An operator ends it; the session stays. */
  kick(): void {
    this.#core.disconnect(reason.administrativeAction);
  }

  /** Undefined before CONNECT is accepted and after the end. */
  view(): ClientView | undefined {
    const accepted = this.#accepted;
    if (accepted === undefined || this.hasEnded()) return undefined;
    return {
      ...this.client,
      remote: this.remote,
      protocol: accepted.protocol,
      connectedMs: Math.round(this.#nowMs() - accepted.connectedAtMs),
      keepAliveS: this.#core.keepAliveS,
      isDurable: accepted.session.durable,
      isPaused: this.#reading.isPaused,
    };
  }

  // -------------------------------------------------------------- the transport

  onData(bytes: Buffer): void {
    this.#parts.counters.bytesReceived += bytes.length;
    this.#core.receive(bytes, this.#nowMs());
    this.#reading.charge(this.#published, bytes.length);
    this.#published = 0;
    this.#reading.update();
  }

  onDrain(): void {
    this.#output.drained();
  }

  onClose(_error: Error | undefined): void {
    this.#core.transportClosed();
    this.#cancelLinger?.();
    this.#ticket.closed();
    this.#owner.closed(this);
  }

  // -------------------------------------------------------------- CONNECT

  onConnect(packet: ConnectPacket): void {
    const { settings, random, clock, flapping, reservedUser } = this.#parts;
    const clientId = clientIdOf(packet, random);
    this.client = { clientId, user: undefined };
    this.#tap.connect(packet, this.#terms.name);
    const fault = clientIdFault(clientId, settings);
    if (fault !== undefined) {
      this.#core.refuseConnect(fault);
      return;
    }
    const { userName, password } = packet;
    const { certificate } = this.#transport;
    const { auth, name: listener } = this.#terms;
    const login = new Login(
      { auth, clock, timers: this.#timers, waitMs: settings.connectWaitMs, reservedUser },
      { clientId, userName, password, certificate, remote: this.remote, listener },
      {
        answer: (reasonCode, data) => this.#core.sendAuth(reasonCode, authData(data)),
        decided: (outcome) => this.#loggedIn(packet, outcome),
        renewed: ({ grants }) => {
          const { clientId, user } = this.client;
          this.client = { clientId, user, ...(grants !== undefined && { grants }) };
        },
        ended: (why) => this.#loginEnded(why),
      },
    );
    this.#login = login;
    if (flapping.isSlowed(clientId, this.#nowMs())) {
      this.#timers.after(settings.flappingDelayMs, () => login.start(packet));
    } else {
      login.start(packet);
    }
  }

  #loggedIn(packet: ConnectPacket, outcome: LoginOutcome): void {
    if (this.#core.state !== "deciding") return;
    const { settings, rights, clock, log } = this.#parts;
    if (outcome.kind === "refused") {
      const { reasonCode, why } = outcome;
      log.warn("broker.login_refused", { ...this.#names(), listener: this.#terms.name, why });
      this.#tap.loginRefused(why);
      this.#core.refuseConnect(reasonCode);
      return;
    }
    const { user, grants } = outcome.identity;
    const { clientId } = this.client;
    this.client = { clientId, user, ...(grants !== undefined && { grants }) };
    const fault = willFault(packet, this.client, rights);
    if (fault !== undefined) {
      this.#core.refuseConnect(fault);
      return;
    }
    const request = connectRequestOf(packet, this.client, settings.sessionExpiryMaxS);
    waitFor(clock, settings.connectWaitMs, this.#openSession(request), {
      value: (opened) => this.#accept(packet, request, opened, outcome),
      error: (error) => this.#unavailable(error),
      late: () => this.#unavailable(undefined),
      // Refused by then: as if the client had never been there.
      valueAfter: (opened) => this.#letGo(opened, { kind: "disconnect", expiryS: undefined }),
    });
  }

  async #openSession(request: ConnectRequest): Promise<Opened> {
    const { core, output, parts } = { core: this.#core, output: this.#output, parts: this.#parts };
    const { rights, clock, counters, sessions, path, settings } = parts;
    const device = deviceProfileOf(settings.devices, this.client.clientId);
    const paced = (waitMs: number) => this.#pace(waitMs);
    const tap = this.#tap;
    const shared = { core, output, owner: this, rights, clock, counters };
    const own = new ClientLink({ ...shared, device, paced, tap });
    this.#hooks = createClientHooks(this.#parts, this);
    const link = this.#hooks?.linkOf(own) ?? own;
    const { session, sessionPresent, tookOver } = await sessions.connect(request, link);
    // Both nodes count it: whichever the clients fight at tells of it.
    if (tookOver) noteTakeover(parts, this.#names());
    const { claim, clientId } = session;
    // What this client has published before is fanned out before what it publishes now (4.6.0-6).
    await path.idleOf(clientId);
    if (claim === undefined) return { session, sessionPresent, inbox: createMemoryInbox() };
    try {
      const inbox = await openDurableInbox(path.store, clientId, claim);
      return { session, sessionPresent, inbox };
    } catch (error) {
      await session.detach({ kind: "disconnect", expiryS: undefined });
      throw error;
    }
  }

  #accept(
    packet: ConnectPacket,
    request: ConnectRequest,
    opened: Opened,
    { data }: Extract<LoginOutcome, { kind: "in" }>,
  ): void {
    if (this.#core.state !== "deciding") {
      // The transport went while the session was made.
      this.#letGo(opened, this.#isShuttingDown ? { kind: "shutdown" } : lost);
      return;
    }
    const { session, sessionPresent, inbox } = opened;
    const { counters } = this.#parts;
    const hooks = this.#hooks;
    const queue = new PublishQueue(this, { ...this.#parts, inbox, published: hooks?.published });
    const subscribes = new SubscribePath({
      ...this.#parts,
      subscribed: hooks?.subscribed,
      core: this.#core,
      session,
      owner: this,
      tap: this.#tap,
      blockedChanged: () => this.#reading.update(),
    });
    const { protocol } = request;
    const connectedAtMs = this.#nowMs();
    const gates = hooks?.accept({ session, queue, subscribes });
    const served = { session, queue, publishes: queue, subscribes, ...gates };
    this.#accepted = { ...served, protocol, connectedAtMs };
    counters.clientsConnected++;
    this.#tap.connected(sessionPresent, session.durable);
    this.#ticket.decided();
    this.#transport.admitted?.();
    const properties = {
      ...answerProperties(packet, request),
      ...authData(data),
    };
    this.#core.acceptConnect({ sessionPresent, properties }, this.#nowMs());
    // What was pipelined behind CONNECT may have ended it already.
    if (this.hasEnded()) return;
    session.open();
    this.#timers.watch();
    this.#reading.update();
  }

  // The state changes under way, which the compiler does not see through calls.
  hasEnded(): boolean {
    return this.#core.state === "ended";
  }

  #unavailable(error: unknown): void {
    if (this.#core.state !== "deciding") return;
    const { log, settings } = this.#parts;
    const reasonCode = error === undefined ? reason.serverUnavailable : connectReason(error);
    const waited = error === undefined ? { connectWaitMs: settings.connectWaitMs } : { error };
    log.warn("broker.session_unavailable", { ...this.#names(), ...waited });
    this.#core.refuseConnect(reasonCode);
  }

  #letGo({ session, inbox }: Opened, cause: DetachCause): void {
    inbox.close();
    this.#detach(session, cause);
  }

  // -------------------------------------------------------------- what the client says

  onPublish(publish: InboundPublish, token: AckToken): void {
    const { counters, path } = this.#parts;
    const { qos, topic } = publish;
    this.#published++;
    this.#tap.publish(publish);
    if (qos === 0) counters.publishesQos0++;
    else if (qos === 1) counters.publishesQos1++;
    else counters.publishesQos2++;
    if (qos === 0 && this.#parts.isSheddingQos0()) {
      counters.qos0Shed++;
      return;
    }
    if (path.mayPublish(this.client, topic)) {
      this.#accepted?.publishes.publish(publish, token);
      return;
    }
    this.denied(token, topic);
  }

  takesRuns(qos: 0 | 1): boolean {
    const accepted = this.#accepted;
    // Before hooks each publish is asked about by itself.
    if (accepted === undefined || accepted.publishes !== accepted.queue) return false;
    if (!accepted.queue.takesRuns || this.#tap.isWatched) return false;
    return qos > 0 || !this.#parts.isSheddingQos0();
  }

  onPublishRun(run: PublishRun): boolean {
    const { counters, path } = this.#parts;
    if (!path.mayPublish(this.client, run.topic.text)) return false;
    if (this.#accepted?.queue.publishRun(run) !== true) return false;
    this.#published += run.count;
    if (run.qos === 0) counters.publishesQos0 += run.count;
    else counters.publishesQos1 += run.count;
    return true;
  }

  denied(token: AckToken, topic: string): void {
    const { counters, log } = this.#parts;
    counters.publishesDenied++;
    log.warn("broker.publish_denied", { ...this.#names(), topic });
    this.#tap.publishRefused(topic, reason.notAuthorized);
    if (token !== 0) this.#core.completeAck(token, reason.notAuthorized);
  }

  onPuback(packetId: number, reasonCode: ReasonCode): void {
    const fault = this.#accepted?.session.puback(packetId, reasonCode);
    this.#acked("PUBACK", packetId, reasonCode, fault);
  }

  onPubacks(packetIds: Uint16Array, count: number): boolean {
    if (this.#tap.isWatched) return false;
    const wrongId = this.#accepted?.session.pubacks(packetIds, count);
    if (wrongId !== undefined) this.#acked("PUBACK", wrongId, reason.success, wrongId);
    return true;
  }

  onPubrec(packetId: number, reasonCode: ReasonCode): void {
    const fault = this.#accepted?.session.pubrec(packetId, reasonCode);
    this.#acked("PUBREC", packetId, reasonCode, fault);
  }

  onPubcomp(packetId: number, reasonCode: ReasonCode): void {
    const fault = this.#accepted?.session.pubcomp(packetId, reasonCode);
    this.#acked("PUBCOMP", packetId, reasonCode, fault);
  }

  onPubrel(packetId: number, _reasonCode: ReasonCode, token: AckToken): void {
    this.#accepted?.queue.release(packetId, token);
  }

  onSubscribe(request: SubscribeRequest): void {
    this.#tap.subscribe(request);
    this.#accepted?.subscribes.subscribe(request);
  }

  onUnsubscribe(request: UnsubscribeRequest): void {
    this.#tap.unsubscribe(request);
    this.#accepted?.subscribes.unsubscribe(request);
  }

  onAuth(packet: AuthPacket): void {
    const login = this.#login;
    if (login === undefined) this.#core.protocolError("AUTH out of turn");
    else if (packet.reasonCode !== reason.reauthenticate) login.onAuth(packet);
    else login.again(packet);
  }

  #acked(packet: AckPacket, packetId: number, reasonCode: ReasonCode, fault: number | undefined) {
    this.#tap.acked(packet, packetId, reasonCode);
    if (fault === undefined) return;
    this.#core.protocolError(`${packet} for packet ${packetId} in the wrong state`);
  }

  // -------------------------------------------------------------- the login, later

  /** Whether the login has ended; the client is told then. */
  recheck(): boolean {
    return this.#login?.recheck() ?? false;
  }

  #loginEnded(why: string): void {
    const { counters, log } = this.#parts;
    counters.clientsLoginEnded++;
    log.warn("broker.login_ended", { ...this.#names(), why });
    this.#core.disconnect(reason.notAuthorized);
  }

  // -------------------------------------------------------------- what becomes of publishes

  ack(token: AckToken, reasonCode: ReasonCode): void {
    this.#tap.answered(reasonCode);
    this.#core.completeAck(token, reasonCode);
  }

  ackRun(run: PublishRun, reasonCode: ReasonCode): void {
    this.#core.ackRun(run, reasonCode);
  }

  refuse(token: AckToken, topic: string, error: CodedError): void {
    const fields = { ...this.#names(), topic, reason: reasonName(publishReason(error)), error };
    this.#parts.log.warn("broker.publish_refused", fields);
    // Its session is at another node: neither taken nor refused, it is to be said again there.
    if (endReason(error) === reason.sessionTakenOver) this.#core.disconnect(endReason(error));
    else this.#notTaken(token, topic, publishReason(error));
  }

  undecided(token: AckToken, topic: string): void {
    this.#parts.counters.publishesDenied++;
    this.#notTaken(token, topic, reason.implementationSpecificError);
  }

  #notTaken(token: AckToken, topic: string, reasonCode: ReasonCode): void {
    this.#tap.publishRefused(topic, reasonCode);
    if (token === 0) return;
    // MQTT 3.1.1 has no way to say it: acked would be a lie.
    if (this.#core.version === 5) this.#core.completeAck(token, reasonCode);
    else this.#core.disconnect(reasonCode);
  }

  releaseFailed(error: CodedError): void {
    this.#parts.log.warn("broker.release_failed", { ...this.#names(), error });
    this.#core.disconnect(endReason(error));
  }

  hooksFailed(error: Error): void {
    this.#parts.log.warn("broker.hooks_failed", { ...this.#names(), error });
    this.#core.disconnect(reason.implementationSpecificError);
  }

  blockedChanged(): void {
    this.#reading.update();
  }

  // -------------------------------------------------------------- the end

  onEnd(end: ConnectionEnd): void {
    const { clock, settings } = this.#parts;
    this.#output.finish();
    this.#reading.end();
    this.#cancelLinger = clock.schedule(settings.lingerMs, () => {
      this.#parts.counters.closesForced++;
      this.#transport.destroy();
    });
    this.#timers.stop();
    this.#tap.ended(end);
    const { isAccepted } = this;
    const isStopping = this.#isShuttingDown;
    reportEnd(this.#parts, end, { ...this.#names(), isAccepted, isStopping });
    this.#ticket.decided();
    const accepted = this.#accepted;
    if (accepted === undefined) return;
    accepted.publishes.end();
    this.#hooks?.closed(end.cause);
    this.#detach(accepted.session, this.#causeOf(end));
  }

  #causeOf(end: ConnectionEnd): DetachCause {
    if (this.#isShuttingDown) return { kind: "shutdown" };
    const { sessionExpiryS } = end;
    const { sessionExpiryMaxS } = this.#parts.settings;
    const expiryS =
      sessionExpiryS === undefined ? undefined : cappedExpiryS(sessionExpiryS, sessionExpiryMaxS);
    return { kind: end.publishWill ? "lost" : "disconnect", expiryS };
  }

  #detach(session: Session, cause: DetachCause): void {
    const { log } = this.#parts;
    const done = session.detach(cause).catch((error: unknown) => {
      log.warn("broker.detach_failed", { ...this.#names(), error });
    });
    this.#owner.detaching(done);
  }

  // -------------------------------------------------------------- pace, room and time

  /** One wait at a time: a session that is told "full" asks for no more until then. */
  #pace(waitMs: number): void {
    if (this.#isPaced) return;
    this.#isPaced = true;
    this.#timers.after(waitMs, () => {
      this.#isPaced = false;
      this.#accepted?.session.drained();
    });
  }

  #onRoom(): void {
    this.#reading.update();
    this.#hooks?.drained();
    this.#accepted?.session.drained();
  }

  #nowMs(): number {
    return this.#parts.clock.elapsedMs();
  }

  #names(): { readonly clientId: string; readonly remote: string } {
    return { clientId: this.client.clientId, remote: this.remote };
  }
}

const lost: DetachCause = { kind: "lost", expiryS: undefined };

function authData(data: Buffer | undefined): Properties {
  return data === undefined ? {} : { authenticationData: data };
}
