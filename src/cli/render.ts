// Messages as `sub` prints them: the payload as it came with a line end, or one JSON object a line.

import type { IncomingMessage } from "./mqtt-client.ts";

export type MessageFormat = {
  readonly output: "text" | "json";
  /** The topic and a space before the payload (text only; JSON always has it). */
  readonly withTopic: boolean;
};

export function printMessage(message: IncomingMessage, format: MessageFormat): Uint8Array {
  if (format.output === "json") return Buffer.from(`${JSON.stringify(jsonOf(message))}\n`);
  const head = format.withTopic ? `${message.topic} ` : "";
  return Buffer.concat([Buffer.from(head), message.payload, lineEnd]);
}

const lineEnd = Buffer.from("\n");

/** Text that is not UTF-8 is given as base64 under another name, so that no reader mistakes it. */
function jsonOf(message: IncomingMessage): Record<string, unknown> {
  const text = Buffer.from(message.payload);
  const decoded = text.toString("utf8");
  const isText = Buffer.from(decoded).equals(text);
  return {
    topic: message.topic,
    ...(isText ? { payload: decoded } : { payloadBase64: text.toString("base64") }),
    qos: message.qos,
    retain: message.isRetained,
    ...(message.timeUs === undefined ? {} : { timeUs: message.timeUs }),
    ...(message.isDuplicate ? { dup: true } : {}),
    ...(message.contentType === undefined ? {} : { contentType: message.contentType }),
    ...(message.responseTopic === undefined ? {} : { responseTopic: message.responseTopic }),
    ...(message.messageExpiryS === undefined ? {} : { messageExpiryS: message.messageExpiryS }),
    ...(message.userProperties.length === 0 ? {} : { userProperties: message.userProperties }),
  };
}
