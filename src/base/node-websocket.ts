// WebSocket on accepted sockets: the HTTP upgrade, then a connection whose bytes are those of binary
// messages, however they are cut. The one home of ws.
//
// Refused: other paths (404), pages of strange origins (403), peers that offer neither `mqtt` nor
// `mqttv3.1` (400), what is no upgrade (426); then text messages (1003), too large ones (1009), those
// in too many parts (1008) and floods of pings.

import http, { type IncomingMessage } from "node:http";
import net from "node:net";
import type { Duplex } from "node:stream";
import { WebSocket, WebSocketServer } from "ws";
import {
  type ConnectionHandlers,
  networkErrors,
  type PeerCertificate,
  type WebSocketRules,
} from "./network.ts";
import { errnoOf, type Served } from "./node-connection.ts";

export type Upgrade = {
  done(connection: Served): void;
  failed(reason: string): void;
};

const subprotocols = ["mqtt", "mqttv3.1"];
const headerBytesMax = 8 * 1024;
const closeTimeoutMs = 5000;
/** Parts of a message: more cost more memory than they bring bytes. */
const fragmentsMax = 16_384;
/** Parts of the stream that make no whole frame yet. */
const chunksMax = 65_536;
/** Pings that came before their answers could leave; one more ends the connection. */
const pongsMax = 60;
const unsupportedData = 1003;
const normalClosure = 1000;

type Waiting = {
  readonly upgrade: Upgrade;
  readonly remote: string;
  readonly certificate: PeerCertificate | undefined;
};

export class WebSocketDoor {
  readonly #rules: WebSocketRules;
  readonly #http: http.Server;
  readonly #webSockets: WebSocketServer;
  readonly #waiting = new WeakMap<Duplex, Waiting>();

  constructor(rules: WebSocketRules) {
    this.#rules = rules;
    this.#http = http.createServer({ maxHeaderSize: headerBytesMax }, (request, response) => {
      this.#waiting.get(request.socket)?.upgrade.failed("plain HTTP");
      response.writeHead(426, { upgrade: "websocket", connection: "close" });
      response.end("Connect with a WebSocket that speaks mqtt.\n");
    });
    this.#http.on("upgrade", (request, socket, head) => this.#onUpgrade(request, socket, head));
    this.#http.on("clientError", (error, socket) => {
      this.#waiting.get(socket)?.upgrade.failed(errnoOf(error));
      socket.destroy();
    });
    // A constant of its own: the types of ws do not know all of them yet.
    const options = {
      noServer: true,
      clientTracking: false,
      perMessageDeflate: false,
      maxPayload: rules.messageBytesMax,
      closeTimeout: closeTimeoutMs,
      maxFragments: fragmentsMax,
      maxBufferedChunks: chunksMax,
      maxPendingAutoPongs: pongsMax,
      handleProtocols: (offered: Set<string>) =>
        subprotocols.find((name) => offered.has(name)) ?? false,
    };
    this.#webSockets = new WebSocketServer(options);
  }

  handle(socket: net.Socket, waiting: Waiting): void {
    this.#waiting.set(socket, waiting);
    this.#http.emit("connection", socket);
  }

  #onUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    const waiting = this.#waiting.get(socket);
    if (waiting === undefined) {
      socket.destroy();
      return;
    }
    const { upgrade, remote, certificate } = waiting;
    const refusal = refusalOf(request, remote, this.#rules);
    if (refusal !== undefined) {
      upgrade.failed(refusal.reason);
      socket.end(`HTTP/1.1 ${refusal.status}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`);
      return;
    }
    const { strangerBytesMax } = this.#rules;
    this.#webSockets.handleUpgrade(request, socket, head, (webSocket) => {
      const names = { remote, certificate, strangerBytesMax };
      upgrade.done(new WebSocketConnection(webSocket, socket, names));
    });
  }
}

type Refusal = { readonly status: string; readonly reason: string };

function refusalOf(
  request: IncomingMessage,
  remote: string,
  rules: WebSocketRules,
): Refusal | undefined {
  const path = (request.url ?? "").split("?", 1)[0] ?? "";
  if (path !== rules.path) {
    return { status: "404 Not Found", reason: `path ${JSON.stringify(path.slice(0, 200))}` };
  }
  const { origin, host } = request.headers;
  if (origin !== undefined && !mayOriginate(origin, { host, remote }, rules)) {
    return { status: "403 Forbidden", reason: `origin ${JSON.stringify(origin.slice(0, 200))}` };
  }
  const offered = (request.headers["sec-websocket-protocol"] ?? "").split(",");
  if (offered.some((name) => subprotocols.includes(name.trim()))) return undefined;
  return { status: "400 Bad Request", reason: "neither mqtt nor mqttv3.1 is offered" };
}

/** Pages may speak to the host they came from; what runs on loopback is not the web. */
function mayOriginate(
  origin: string,
  { host = "", remote }: { readonly host: string | undefined; readonly remote: string },
  { origins, isOpen }: WebSocketRules,
): boolean {
  if (origins.includes("*") || origins.includes(origin)) return true;
  if (origins.length > 0) return false;
  try {
    const { hostname } = new URL(origin);
    const own = new URL(`http://${host}`).hostname;
    if (hostname === "localhost" || hostname === "127.0.0.1") return true;
    return hostname === own && !(isOpen && isOnLoopback(remote) && isName(own));
  } catch {
    return false; // "null", and whatever else is no URL
  }
}

function isOnLoopback(remote: string): boolean {
  return /^(127\.|\[?(::ffff:127\.|::1\]))/.test(remote);
}

/** `hostname` as URLs have it: IPv6 in brackets. */
function isName(hostname: string): boolean {
  return !hostname.startsWith("[") && !net.isIPv4(hostname);
}

type Names = {
  readonly remote: string;
  readonly certificate: PeerCertificate | undefined;
  readonly strangerBytesMax: number;
};

class WebSocketConnection implements Served {
  readonly remote: string;
  readonly certificate: PeerCertificate | undefined;
  readonly #webSocket: WebSocket;
  readonly #socket: Duplex;
  #handlers: ConnectionHandlers | undefined;
  #isClosing = false;
  #awaitsDrain = false;
  #error: Error | undefined;
  /** Bytes come and not handed on: the part of a message that is here. */
  #heldBytes = 0;
  #heldBytesMax: number;

  constructor(webSocket: WebSocket, socket: Duplex, names: Names) {
    this.remote = names.remote;
    this.certificate = names.certificate;
    this.#heldBytesMax = names.strangerBytesMax;
    this.#webSocket = webSocket;
    this.#socket = socket;
  }

  serve(handlers: ConnectionHandlers): void {
    this.#handlers = handlers;
    const webSocket = this.#webSocket;
    webSocket.binaryType = "nodebuffer";
    webSocket.on("message", (data: Buffer, isBinary: boolean) => this.#onMessage(data, isBinary));
    webSocket.on("error", (error) => {
      this.#error = networkErrors.failed({ address: this.remote, errno: errnoOf(error) }, error);
    });
    webSocket.on("close", () => {
      this.#isClosing = true;
      handlers.onClose(this.#error);
    });
    this.#socket.on("data", this.#count);
  }

  get unsentBytes(): number {
    return this.#webSocket.bufferedAmount;
  }

  admitted(): void {
    this.#heldBytesMax = Number.POSITIVE_INFINITY; // the message has its own bound
    this.#socket.off("data", this.#count);
  }

  write(bytes: Uint8Array): void {
    if (this.#isClosing || this.#webSocket.readyState !== WebSocket.OPEN || bytes.length === 0) {
      return;
    }
    this.#webSocket.send(bytes, this.#flushed);
    this.#awaitsDrain ||= this.unsentBytes > 0;
  }

  pause(): void {
    this.#webSocket.pause();
  }

  resume(): void {
    this.#webSocket.resume();
  }

  end(): void {
    this.#isClosing = true;
    this.#webSocket.close(normalClosure);
  }

  destroy(): void {
    this.#isClosing = true;
    this.#webSocket.terminate();
  }

  #onMessage(data: Buffer, isBinary: boolean): void {
    this.#heldBytes = 0;
    if (this.#isClosing) return;
    if (isBinary) {
      this.#handlers?.onData(data);
      return;
    }
    this.#isClosing = true;
    this.#error ??= networkErrors.refusedPeer({ address: this.remote, reason: "a text message" });
    this.#webSocket.close(unsupportedData);
  }

  readonly #count = (bytes: Buffer): void => {
    this.#heldBytes += bytes.length;
    if (this.#heldBytes > this.#heldBytesMax) this.destroy();
  };

  readonly #flushed = (): void => {
    if (!this.#awaitsDrain || this.unsentBytes > 0) return;
    if (this.#webSocket.readyState === WebSocket.CLOSED) return;
    this.#awaitsDrain = false;
    this.#handlers?.onDrain();
  };
}
