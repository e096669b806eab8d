// How many QoS 1 and 2 messages of a client are unacknowledged by us: what our Receive Maximum
// bounds (3.3.4-7, 4.9). QoS 1 counts until PUBACK, QoS 2 until PUBCOMP or a PUBREC that refuses.
// A QoS 2 message sent again under its id is the same message.

export class ReceiveQuota {
  readonly #receiveMaximum: number;
  #qos1Count = 0;
  readonly #qos2Ids = new Set<number>();
  /** Released by the client, PUBCOMP not sent yet. Its id may come again, against the rules. */
  #releasingCount = 0;

  constructor(receiveMaximum: number) {
    this.#receiveMaximum = receiveMaximum;
  }

  get used(): number {
    return this.#qos1Count + this.#qos2Ids.size + this.#releasingCount;
  }

  get receiveMaximum(): number {
    return this.#receiveMaximum;
  }

  /** Room for one more at QoS 1. */
  get hasRoom(): boolean {
    return this.used < this.#receiveMaximum;
  }

  /** Counts a message; false when it is one too many. */
  take(qos: 1 | 2, packetId: number): boolean {
    if (qos === 2 && this.#qos2Ids.has(packetId)) return true;
    if (this.used >= this.#receiveMaximum) return false;
    if (qos === 1) this.#qos1Count++;
    else this.#qos2Ids.add(packetId);
    return true;
  }

  /** Nothing where nothing counts: before MQTT 5. */
  releaseQos1(): void {
    if (this.#qos1Count > 0) this.#qos1Count--;
  }

  /** A PUBREC refused it. */
  releaseQos2(packetId: number): void {
    this.#qos2Ids.delete(packetId);
  }

  /** PUBREL has come: true when its PUBCOMP will free a slot, which it does not for unknown ids. */
  beginRelease(packetId: number): boolean {
    const isCounted = this.#qos2Ids.delete(packetId);
    if (isCounted) this.#releasingCount++;
    return isCounted;
  }

  endRelease(): void {
    this.#releasingCount--;
  }
}
