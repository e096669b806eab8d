// How many QoS 1 and 2 messages of a client are unacknowledged by us: what our Receive Maximum
// bounds (3.3.4-7, 4.9). QoS 1 counts until PUBACK, QoS 2 until PUBCOMP or a PUBREC that refuses.
// A QoS 2 message sent again under its id is the same message.

export class ReceiveQuota {
  readonly #receiveMaximum: number;
  #qos1Count = 0;
  readonly #qos2Ids = new Set<number>();

  constructor(receiveMaximum: number) {
    this.#receiveMaximum = receiveMaximum;
  }

  get used(): number {
    return this.#qos1Count + this.#qos2Ids.size;
  }

  get receiveMaximum(): number {
    return this.#receiveMaximum;
  }

  /** Counts a message; false when it is one too many. */
  take(qos: 1 | 2, packetId: number): boolean {
    if (qos === 2 && this.#qos2Ids.has(packetId)) return true;
    if (this.used >= this.#receiveMaximum) return false;
    if (qos === 1) this.#qos1Count++;
    else this.#qos2Ids.add(packetId);
    return true;
  }

  releaseQos1(): void {
    this.#qos1Count--;
  }

  /** Also for ids of an earlier connection, which are not counted on this one. */
  releaseQos2(packetId: number): void {
    this.#qos2Ids.delete(packetId);
  }
}
