// Packet ids of QoS 2 messages that a client has sent and not yet released, by which a message is
// told from its repeat. DUP decides nothing.
//
// An expiry-0 publisher's ids live in its connection. A durable one's are evidence in the store,
// beside the messages; what is kept here is a view of it that knows at once whether the other
// effects of a publish (a retained write) have been had before.

import type { CodedError } from "../base/index.ts";
import { InboundQos2, type ReasonCode, reason } from "../mqtt/index.ts";
import type { AppendRequest, PublisherClaim, Store } from "../store/index.ts";

export interface Qos2Inbox {
  take(packetId: number): "new" | "repeat";
  evidenceOf(packetId: number): AppendRequest["evidence"];
  /** The message was refused: its id is free. */
  forget(packetId: number): void;
  /** PUBREL; `done` when it is durable, with what PUBCOMP says. */
  release(
    packetId: number,
    done: (error: CodedError | undefined, reasonCode: ReasonCode) => void,
  ): void;
  close(): void;
}

export function createMemoryInbox(): Qos2Inbox {
  const ids = new InboundQos2();
  return {
    take: (packetId) => (ids.receive(packetId) === "repeat" ? "repeat" : "new"),
    evidenceOf: () => undefined,
    forget: (packetId) => {
      ids.release(packetId);
    },
    release: (packetId, done) => done(undefined, ids.release(packetId)),
    close: () => undefined,
  };
}

/** @throws STORE_OWNER_FENCED when the session has a newer owner. */
export async function openDurableInbox(
  store: Pick<Store, "evidence">,
  publisher: string,
  claim: PublisherClaim,
): Promise<Qos2Inbox> {
  const { evidence } = store;
  await evidence.open(publisher, claim);
  const taken = new Set(evidence.list(publisher, claim));
  return {
    take: (packetId) => {
      if (taken.has(packetId)) return "repeat";
      taken.add(packetId);
      return "new";
    },
    evidenceOf: (packetId) => ({ ...claim, packetId }),
    forget: (packetId) => {
      taken.delete(packetId);
    },
    release: (packetId, done) => {
      taken.delete(packetId);
      evidence.release(publisher, claim, packetId, (error, known) => {
        done(error, known ? reason.success : reason.packetIdentifierNotFound);
      });
    },
    close: () => evidence.close(publisher, claim),
  };
}
