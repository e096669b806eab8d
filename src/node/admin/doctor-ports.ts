// What `flagstone doctor` sees of a node's ports: of a running node, whether each listener answers; of
// one that does not run, whether they are free. Messages name listeners as the configuration does.

import net from "node:net";
import type { Doctor } from "../../admin/index.ts";
import { type Clock, sleep } from "../../base/index.ts";
import type { BoundListener } from "../assemble.ts";
import type { Settings } from "../config/keys.ts";

type Advice = Doctor["checks"][number];

export type Doors = {
  readonly settings: Settings;
  readonly clock: Clock;
  readonly listeners: readonly BoundListener[] | undefined;
};

const answerMsMax = 1000;

export async function portCheck({ settings, clock, listeners }: Doors): Promise<Advice> {
  const name = "ports";
  const wanted = Object.entries(settings.listeners);
  const faults =
    listeners === undefined
      ? await Promise.all(wanted.map(([own, at]) => bindFault(own, at)))
      : await Promise.all(listeners.map((at) => answerFault(at, clock)));
  const found = faults.filter((fault) => fault !== undefined);
  if (found.length > 0) {
    const help =
      listeners === undefined
        ? "Choose other ports, or stop the program that has them (ss -ltnp)."
        : "Is the process out of descriptors, or its event loop stuck? See the other checks.";
    return { name, state: "failed", message: found.join("; "), help };
  }
  const message = listeners === undefined ? "all are free" : "all listeners answer";
  return { name, state: "ok", message };
}

async function answerFault(listener: BoundListener, clock: Clock): Promise<string | undefined> {
  const { name, host, port, path } = listener;
  const socket = net.connect(path === undefined ? { host: reachable(host), port } : { path });
  const connected = new Promise<string | undefined>((resolve) => {
    socket.once("connect", () => resolve(undefined));
    socket.once("error", (error) => resolve(`${name} does not answer: ${codeOf(error)}`));
  });
  const late = sleep(clock, answerMsMax).then(() => `${name} does not answer within a second`);
  const fault = await Promise.race([connected, late]);
  socket.destroy();
  return fault;
}

/** Nobody can connect to "any address"; the loopback one is part of it. */
function reachable(host: string): string {
  if (host === "0.0.0.0") return "127.0.0.1";
  return host === "::" ? "::1" : host;
}

function bindFault(
  name: string,
  { type, host, port }: Settings["listeners"][string],
): Promise<string | undefined> {
  if (type === "unix" || port === 0) return Promise.resolve(undefined);
  return new Promise((resolve) => {
    const server = net.createServer();
    server.once("error", (error) => {
      const code = codeOf(error);
      const why = code === "EADDRINUSE" ? "another program has it" : code;
      resolve(`port ${port} of ${name} cannot be had: ${why}`);
    });
    server.listen({ host, port, exclusive: true }, () => server.close(() => resolve(undefined)));
  });
}

function codeOf(error: Error): string {
  return (error as NodeJS.ErrnoException).code ?? error.message;
}
