// What a publish queue is made of: whose it is, and the steps that stand in it.

import type { Clock, CodedError } from "../base/index.ts";
import type { AckToken, PublishRun, ReasonCode } from "../mqtt/index.ts";
import type { Client } from "./access.ts";
import type { BrokerCounters } from "./counters.ts";
import type { Message, PublishPath, PublishPlan } from "./publish-path.ts";
import type { Qos2Inbox } from "./qos2-inbox.ts";
import type { BrokerSettings } from "./settings.ts";

export interface PublishOwner {
  readonly client: Client;
  ack(token: AckToken, reasonCode: ReasonCode): void;
  /** REQUIRES: nothing before it is still to be acked. */
  ackRun(run: PublishRun, reasonCode: ReasonCode): void;
  /** A message at QoS 1 or 2 will not be taken. */
  refuse(token: AckToken, topic: string, error: CodedError): void;
  /** A PUBREL cannot be made durable. */
  releaseFailed(error: CodedError): void;
  /** `blocked` may have changed. */
  blockedChanged(): void;
}

export type PublishQueueParts = {
  readonly path: PublishPath;
  readonly inbox: Qos2Inbox;
  /** Told of each message that was taken, after its fan-out. */
  readonly published?: ((message: Message) => void) | undefined;
  readonly clock: Clock;
  readonly counters: BrokerCounters;
  readonly settings: Pick<BrokerSettings, "publishWaitMs" | "publishBytesMax" | "publishesMax">;
};

/**
 * `held`: not yet given to the store. `deciding`: what is to be written is not known yet. `behind`: to
 * be written once what came before is decided. `failed`: may be tried again. `refused`, `dropped`: not.
 */
export type StepState =
  | "held"
  | "deciding"
  | "behind"
  | "writing"
  | "done"
  | "failed"
  | "refused"
  | "dropped";

export type Release = {
  readonly kind: "release";
  readonly token: AckToken;
  readonly sizeBytes: 0;
  state: StepState;
  reasonCode: ReasonCode;
  error: CodedError | undefined;
};

export type Publish = {
  readonly kind: "publish";
  readonly token: AckToken;
  readonly packetId: number;
  readonly sizeBytes: number;
  readonly message: Message;
  plan: PublishPlan | undefined;
  /** Only `append` of the plan is left to be written. */
  isDecided: boolean;
  state: StepState;
  isRepeat: boolean;
  error: CodedError | undefined;
};

export type Step = Publish | Release;

/** Something of it goes to the store. */
export function writes({ plan }: Publish): boolean {
  return plan?.retained !== undefined || plan?.append !== undefined;
}
