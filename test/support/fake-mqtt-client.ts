// A broker on paper behind the port that `pub` and `sub` use: records what they ask for, delivers
// what the test says, refuses or loses connections on demand.

import { cliErrors } from "../../src/cli/errors.ts";
import type {
  ClientOptions,
  ConnectClient,
  IncomingMessage,
  OnMessage,
  OutgoingMessage,
} from "../../src/cli/mqtt-client.ts";

export class FakeBroker {
  readonly connects: ClientOptions[] = [];
  readonly published: Array<OutgoingMessage & { text: string }> = [];
  readonly subscriptions: Array<{ filters: readonly string[]; qos: number }> = [];
  endCount = 0;
  /** Highest number of publishes not yet acknowledged. */
  underWayMax = 0;
  connectFailure: Error | undefined;
  publishFailure: Error | undefined;
  #onMessage: OnMessage = () => false;
  #lose: (error: Error) => void = () => undefined;
  #underWay = 0;

  readonly connect: ConnectClient = async (options, onMessage) => {
    this.connects.push(options);
    if (this.connectFailure !== undefined) throw this.connectFailure;
    this.#onMessage = onMessage;
    const closed = new Promise<void>((_resolve, reject) => {
      this.#lose = reject;
    });
    return {
      isSessionPresent: false,
      closed,
      publish: (message) => this.#publish(message),
      subscribe: async (filters, qos) => {
        this.subscriptions.push({ filters, qos });
      },
      end: async () => {
        this.endCount++;
      },
    };
  };

  /** Whether the subscriber took it, so that it would be acknowledged. */
  deliver(
    topic: string,
    payload: string | Uint8Array,
    rest: Partial<IncomingMessage> = {},
  ): boolean {
    return this.#onMessage({
      topic,
      payload: Buffer.from(payload),
      qos: 1,
      isRetained: false,
      isDuplicate: false,
      userProperties: [],
      contentType: undefined,
      responseTopic: undefined,
      messageExpiryS: undefined,
      ...rest,
    });
  }

  lose(): void {
    this.#lose(cliErrors.connectionLost({ address: "127.0.0.1:1883", reason: "reset" }));
  }

  async #publish(message: OutgoingMessage): Promise<void> {
    this.#underWay++;
    this.underWayMax = Math.max(this.underWayMax, this.#underWay);
    await Promise.resolve();
    this.#underWay--;
    if (this.publishFailure !== undefined) throw this.publishFailure;
    this.published.push({ ...message, text: Buffer.from(message.payload).toString() });
  }
}
