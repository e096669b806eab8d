// A TCP relay whose links can be made to swallow everything, as a radio link that is gone without
// either end being told: nothing passes, nothing is closed. What was under way when the link broke
// never arrives.

import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";

type Pair = { readonly near: Socket; readonly far: Socket; isSwallowing: boolean };

export class BreakableLink {
  readonly #server: Server;
  readonly #pairs = new Set<Pair>();

  private constructor(server: Server) {
    this.#server = server;
  }

  static open(port: number): Promise<BreakableLink> {
    return new Promise((resolve) => {
      const server = createServer();
      const link = new BreakableLink(server);
      server.on("connection", (near) => link.#join(near, port));
      server.listen(0, "127.0.0.1", () => resolve(link));
    });
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** From now on the open connections swallow what they get. New ones work. */
  swallow(): void {
    for (const pair of this.#pairs) pair.isSwallowing = true;
  }

  async close(): Promise<void> {
    for (const { near, far } of this.#pairs) {
      near.destroy();
      far.destroy();
    }
    await new Promise((resolve) => this.#server.close(resolve));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #join(near: Socket, port: number): void {
    const far = connect({ port, host: "127.0.0.1" });
    const pair: Pair = { near, far, isSwallowing: false };
    this.#pairs.add(pair);
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      from.setNoDelay(true);
      from.on("data", (chunk) => {
        if (!pair.isSwallowing) to.write(chunk);
      });
      // An end is a packet too: it does not pass a broken link.
      from.on("close", () => {
        if (!pair.isSwallowing) to.destroy();
      });
      from.on("error", () => undefined);
    }
  }
}
