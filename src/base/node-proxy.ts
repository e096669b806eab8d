// Reads the PROXY header off a fresh socket, and leaves the socket as if there had never been one.

import type net from "node:net";
import { plainAddress } from "./ip-address.ts";
import type { ProxyRules } from "./network.ts";
import { type ProxyHeader, parseProxyHeader, proxyHeaderBytesMax } from "./proxy-header.ts";

export class ProxyDoor {
  readonly #rules: ProxyRules;
  readonly #refused: (socket: net.Socket, reason: string) => void;
  #waiting = 0;

  constructor(rules: ProxyRules, refused: (socket: net.Socket, reason: string) => void) {
    this.#rules = rules;
    this.#refused = refused;
  }

  /**
   * Calls back with the header, or with undefined at once for a peer that sends none. Behind a
   * header the socket is paused, with what follows it put back.
   */
  read(socket: net.Socket, done: (header: ProxyHeader | undefined) => void): void {
    const { trusts, headerWaitMs, waitingMax } = this.#rules;
    if (!trusts(plainAddress(socket.remoteAddress ?? ""))) {
      done(undefined);
      return;
    }
    if (this.#waiting >= waitingMax) {
      socket.destroy();
      return;
    }
    this.#waiting++;
    let seen = Buffer.alloc(0);
    const leave = (): void => {
      this.#waiting--;
      clearTimeout(timer);
      socket.off("data", onData).off("close", leave).off("error", onError);
    };
    const refuse = (reason: string): void => {
      leave();
      this.#refused(socket, reason);
      socket.on("error", onError).destroy();
    };
    const timer = setTimeout(() => refuse("no PROXY header in time"), headerWaitMs);
    const onError = (): void => undefined; // "close" follows
    const onData = (bytes: Buffer): void => {
      seen = Buffer.concat([seen, bytes]);
      const parsed = parseProxyHeader(seen);
      if (parsed.kind === "invalid") refuse(parsed.why);
      else if (parsed.kind === "more") {
        if (seen.length >= proxyHeaderBytesMax) refuse("the PROXY header is too long");
      } else {
        leave();
        socket.pause();
        if (seen.length > parsed.length) socket.unshift(seen.subarray(parsed.length));
        done(parsed);
      }
    };
    socket.on("data", onData).on("close", leave).on("error", onError);
  }
}
