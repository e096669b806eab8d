// A message of a shared group in the hands of one member, as the member's connection sees it.

export interface Dealt {
  /** At QoS 2 it may be sent only once the group has it durably that this member holds it. */
  readonly waitsForGroup: boolean;
  /** Nothing more is owed: acked, refused, expired, or half delivered by one who is gone. */
  done(): void;
  /**
   * The member's own record is durable: the message is the member's. `then` runs when the group has
   * durably forgotten it; until then the record must stay, since the group would ask for it.
   */
  bound(then: () => void): void;
  /** The connection has ended: it may be dealt again. `sent`: the member may have seen it. */
  back(sent: boolean): void;
  /** The connection has ended while the member's record was on its way. */
  unsure(): void;
}
