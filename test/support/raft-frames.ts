// Looks into the frames between simulated Raft hosts.

import { decodeMessage } from "../../src/raft/codec.ts";
import type { Message } from "../../src/raft/core/types.ts";
import { decodeLetters, openFrame } from "../../src/raft/host/frames.ts";
import { clusterId } from "./raft-cluster.ts";

/** The Raft messages in a frame, with their groups. */
export function messagesIn(frame: Buffer): Array<{ group: number; message: Message }> {
  const opened = openFrame(frame, { clusterId, frameBytesMax: 2 ** 30, knows: () => true });
  if (typeof opened === "string" || opened.kind !== "messages") return [];
  const letters = decodeLetters(opened.body) ?? [];
  return letters.map(({ group, message }) => ({ group, message: decodeMessage(message) }));
}
