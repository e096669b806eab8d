// Whose turn it is in an exchange of AUTH packets (4.12): an answer needs a challenge of ours, and
// only an accepted client may begin anew. The method is that of CONNECT throughout. An exchange is of
// bounded length: each answer gives the client new time, and strangers have little of it.

import type { CodedError } from "../../base/index.ts";
import type { AuthPacket } from "../codec/packets.ts";
import { type ReasonCode, reason } from "../codec/reasons.ts";
import { protocolError } from "../errors.ts";

/** Of one exchange, from the client. Methods in use take two to four. */
const packetsMax = 8;

export class AuthExchange {
  /** A challenge of ours is out, or the client has begun anew and waits for one. */
  #isOpen = false;
  #packets = 0;

  /** Our AUTH leaves: 0x18 asks for more. */
  sent(reasonCode: ReasonCode): void {
    this.#isOpen = reasonCode === reason.continueAuthentication;
  }

  /** CONNACK has ended it. */
  end(): void {
    this.#isOpen = false;
    this.#packets = 0;
  }

  /** Takes the client's AUTH; returns its fault. `method`: of CONNECT. */
  take(
    packet: AuthPacket,
    method: string | undefined,
    isAccepted: boolean,
  ): CodedError | undefined {
    const { reasonCode, properties } = packet;
    if (method === undefined) return protocolError("AUTH without a method in CONNECT");
    if (properties.authenticationMethod !== method)
      return protocolError("AUTH with another method");
    const isAnswer = reasonCode === reason.continueAuthentication;
    const isExpected = isAnswer ? this.#isOpen : isAccepted && !this.#isOpen;
    if (!isExpected) return protocolError(`unexpected AUTH 0x${reasonCode.toString(16)}`);
    this.#isOpen = reasonCode === reason.reauthenticate;
    this.#packets = isAnswer ? this.#packets + 1 : 1;
    if (this.#packets > packetsMax) return protocolError(`more than ${packetsMax} AUTH packets`);
    return undefined;
  }
}
