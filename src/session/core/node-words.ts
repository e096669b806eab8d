// What nodes of a cluster ask each other about client ids (docs/formats/session.md, "Between nodes").

import { ByteReader, ByteWriter, isCodedError } from "../../base/index.ts";

/** A client id, and when whoever uses it came. */
export type Arrival = { readonly clientId: string; readonly arrivedUs: number };

/** What a node says of a client id that another node has a CONNECT of. */
export const presence = {
  none: 0,
  /** In use here: it can be asked for. */
  here: 1,
  /** Another connection is coming here that is later: the asking one gives way. */
  later: 2,
} as const;

export const released = {
  /** Not in use here. */
  none: 0,
  /** It was, and its state is written. */
  released: 1,
  /** It is another user's, and stays. */
  refused: 2,
} as const;

/** Who comes asks for the client id. */
export type Release = Arrival & { readonly user: string | undefined };

/** What an operator asks of a session that another node serves. */
export type Operation = {
  readonly what: "end" | "purge" | "unsubscribe";
  readonly clientId: string;
  /** "" where it needs none. */
  readonly filter: string;
};

/** Of operations. */
export const operated = {
  /** It is not served here. */
  elsewhere: 0,
  done: 1,
  /** There was no such subscription. */
  nothing: 2,
} as const;

const operations: ReadonlyArray<Operation["what"]> = ["end", "purge", "unsubscribe"];

/** Arrivals asked about at a time. */
export const arrivalsMax = 1_000;

export function encodeArrivals(arrivals: readonly Arrival[]): Buffer {
  const out = new ByteWriter(16 + 32 * arrivals.length).varint(arrivals.length);
  for (const { clientId, arrivedUs } of arrivals) out.string(clientId).varint(arrivedUs);
  return out.finish();
}

/** Undefined for what cannot be. */
export function decodeArrivals(bytes: Uint8Array): Arrival[] | undefined {
  return read(bytes, (input) => {
    const count = input.varint();
    if (count > arrivalsMax) return undefined;
    const arrivals: Arrival[] = [];
    while (arrivals.length < count) {
      arrivals.push({ clientId: input.string(), arrivedUs: input.varint() });
    }
    return arrivals;
  });
}

export function encodeRelease({ clientId, arrivedUs, user }: Release): Buffer {
  const out = new ByteWriter(64).string(clientId).varint(arrivedUs);
  return user === undefined ? out.u8(0).finish() : out.u8(1).string(user).finish();
}

export function decodeRelease(bytes: Uint8Array): Release | undefined {
  return read(bytes, (input) => {
    const clientId = input.string();
    const arrivedUs = input.varint();
    return { clientId, arrivedUs, user: input.u8() === 0 ? undefined : input.string() };
  });
}

export function encodeOperation({ what, clientId, filter }: Operation): Buffer {
  const out = new ByteWriter(64).u8(operations.indexOf(what));
  return out.string(clientId).string(filter).finish();
}

export function decodeOperation(bytes: Uint8Array): Operation | undefined {
  return read(bytes, (input) => {
    const what = operations[input.u8()];
    return what && { what, clientId: input.string(), filter: input.string() };
  });
}

function read<T>(bytes: Uint8Array, parse: (input: ByteReader) => T): T | undefined {
  try {
    const input = new ByteReader(bytes);
    const value = parse(input);
    return input.remaining === 0 ? value : undefined;
  } catch (error) {
    if (isCodedError(error) && error.kind === "corrupt") return undefined;
    throw error;
  }
}
