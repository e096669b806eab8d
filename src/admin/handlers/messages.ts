// Retained messages, publishing, history.

import type { Clock, CodedError } from "../../base/index.ts";
import type { Retained } from "../../session/index.ts";
import type { Ttv } from "../../store/index.ts";
import { parseTopicFilter, parseTopicName } from "../../topic/index.ts";
import { limitDefault } from "../contract/values.ts";
import type { AnswerOf, InputOf } from "../contract.ts";
import {
  decodeCursor,
  encodeCursor,
  given,
  type Handlers,
  isPlace,
  missing,
  pageRequest,
  type Running,
} from "../handler-types.ts";
import { type HistoryPosition, readHistory } from "../history.ts";
import { messageView, payloadShown } from "../message-view.ts";

export type MessageHandlers = Handlers<
  "listRetained" | "getRetained" | "deleteRetained" | "publish" | "queryHistory"
>;

/** Of messages as they are stored; an answer may be six times as long. */
const pageBytesMax = 8 * 1024 * 1024;

export function messageHandlers(running: Running, clock: Clock): MessageHandlers {
  return {
    listRetained: async ({ query }, caller) => {
      const show = payloadShown(query.payload, caller);
      const { text } = parseTopicFilter(query.filter ?? "#");
      const { after, countMax } = pageRequest(query);
      const page = await retainedPage(running().retained, text, after, countMax);
      const items = page.messages.map((message) => messageView(message, show));
      return given({ items, next: page.next });
    },
    getRetained: async ({ query: { topic, payload } }, caller) => {
      const show = payloadShown(payload, caller, "whole");
      const message = await running().retained.get(parseTopicName(topic));
      if (message === undefined) throw missing("retained message at", topic);
      return messageView(message, show);
    },
    deleteRetained: ({ body }) => deleteRetained(running().retained, body),
    publish: async ({ body }) => {
      const { payload = "", payloadBase64 } = body;
      await running().publish({
        topic: parseTopicName(body.topic),
        payload:
          payloadBase64 === undefined ? Buffer.from(payload) : Buffer.from(payloadBase64, "base64"),
        qos: body.qos,
        retain: body.retain,
        messageExpiryS: body.messageExpiryS,
        contentType: body.contentType,
        responseTopic:
          body.responseTopic === undefined ? undefined : parseTopicName(body.responseTopic),
        userProperties: body.userProperties ?? [],
      });
      return { done: true };
    },
    queryHistory: async ({ query }, caller) => {
      const show = payloadShown(query.payload, caller, query.whole ? "whole" : "beginning");
      const page = await readHistory(running().store, clock, {
        filter: parseTopicFilter(query.filter).text,
        fromUs: query.fromUs ?? 0,
        toUs: query.toUs ?? Number.MAX_SAFE_INTEGER,
        after: decodeCursor(query.after, isPosition),
        countMax: query.limit ?? limitDefault,
        bytesMax: pageBytesMax,
        show: (ttv) => messageView(ttv, show),
      });
      const next = page.next === undefined ? undefined : encodeCursor(page.next);
      return given({ items: [...page.messages], next });
    },
  };
}

function isPosition(value: unknown): value is HistoryPosition {
  const { timeUs, shard } = (value ?? {}) as Partial<HistoryPosition>;
  return isPlace(timeUs) && isPlace(shard);
}

/** Pages of the room end with each shard, also with nothing on them: here one ends when it is full. */
async function retainedPage(
  retained: Retained,
  filter: string,
  after: string | undefined,
  countMax: number,
): Promise<{ messages: Ttv[]; next: string | undefined }> {
  const messages: Ttv[] = [];
  let next = after;
  do {
    const page = await retained.page(filter, next, countMax - messages.length);
    messages.push(...page.messages);
    next = page.next;
  } while (next !== undefined && messages.length < countMax);
  return { messages, next };
}

async function deleteRetained(
  retained: Retained,
  { filter, dryRun, after, limit }: InputOf<"deleteRetained">["body"],
): Promise<AnswerOf<"deleteRetained">> {
  const { text } = parseTopicFilter(filter);
  const page = await retainedPage(retained, text, after, limit ?? limitDefault);
  if (!dryRun) await Promise.all(page.messages.map((message) => clear(retained, message)));
  const topics = page.messages.map(({ topic }) => topic);
  return given({ topics, next: page.next, dryRun });
}

function clear(retained: Retained, message: Ttv): Promise<void> {
  return new Promise((resolve, reject) => {
    const done = (error: CodedError | undefined): void =>
      error === undefined ? resolve() : reject(error);
    retained.put(message, true, done);
  });
}
