// What the heap of a launched broker holds after it has been collected, by way of its inspector: a
// process as the system sees it keeps what it once took, and says little.

import WebSocket from "ws";
import type { BrokerProcess } from "./broker-process.ts";

/** For `LaunchedBroker.open`: an inspector on a free port of this machine. */
export const withInspector = { NODE_OPTIONS: "--inspect=127.0.0.1:0" };

const announced = /Debugger listening on (ws:\/\/\S+)/;

type Answer = {
  readonly id?: number;
  readonly result?: { readonly usedSize?: number };
  readonly error?: { readonly message: string };
};

/** REQUIRES: started `withInspector`. */
export async function collectedHeapBytes(broker: BrokerProcess): Promise<number> {
  const url = announced.exec(broker.stderr())?.[1];
  if (url === undefined) throw new Error(`no inspector\n${broker.output()}`);
  const socket = new WebSocket(url);
  try {
    await new Promise((resolve, reject) => socket.once("open", resolve).once("error", reject));
    // Twice: what was finalized by the first goes with the second.
    await ask(socket, 1, "HeapProfiler.collectGarbage");
    await ask(socket, 2, "HeapProfiler.collectGarbage");
    const { usedSize } = await ask(socket, 3, "Runtime.getHeapUsage");
    if (usedSize === undefined) throw new Error("the inspector names no size");
    return usedSize;
  } finally {
    socket.close();
  }
}

function ask(
  socket: WebSocket,
  id: number,
  method: string,
): Promise<NonNullable<Answer["result"]>> {
  return new Promise((resolve, reject) => {
    const hear = (data: WebSocket.RawData): void => {
      const answer = JSON.parse(data.toString()) as Answer;
      if (answer.id !== id) return;
      socket.off("message", hear);
      if (answer.error !== undefined) reject(new Error(`${method}: ${answer.error.message}`));
      else resolve(answer.result ?? {});
    };
    socket.on("message", hear).once("close", () => reject(new Error(`${method}: closed`)));
    socket.send(JSON.stringify({ id, method }));
  });
}
