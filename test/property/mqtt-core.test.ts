// The server connection under any chunking and any order of commits.

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { encodePacket, type Packet } from "../../src/mqtt/index.ts";
import { Conversation, connect4, connect5, publishing, pubrel } from "../unit/mqtt/conversation.ts";
import { anyPacket } from "./mqtt-arbitraries.ts";

describe("the server connection", () => {
  test("the same bytes give the same events and answers, whatever the chunking", () => {
    const garbled = fc.option(fc.tuple(fc.nat(), fc.integer({ min: 0, max: 255 })));
    fc.assert(
      fc.property(
        fc.array(anyPacket, { maxLength: 6 }),
        fc.array(fc.integer({ min: 1, max: 30 }), { minLength: 1, maxLength: 10 }),
        fc.boolean(),
        garbled,
        (sent, sizes, five, change) => {
          const version = five ? 5 : 4;
          const fromClient = sent.filter((item) => item.sender === "client");
          const packets = fromClient.filter((item) => item.version === version);
          const stream = Buffer.concat([
            encodePacket(five ? connect5 : connect4, version),
            ...packets.map(({ packet }) => encodePacket(packet, version)),
          ]);
          if (change !== null) stream[change[0] % stream.length] = change[1];
          const whole = new Conversation();
          whole.say(stream.toString("hex"));
          const cut = new Conversation();
          for (let at = 0, turn = 0; at < stream.length; turn++) {
            const size = sizes[turn % sizes.length]!;
            cut.say(stream.subarray(at, at + size).toString("hex"));
            at += size;
          }
          // A cut packet can be refused at its header, a whole one says more: same cause, same end.
          expect(cut.events).toEqual(whole.events);
          expect(cut.end?.cause).toBe(whole.end?.cause);
          if (whole.end?.cause !== "protocol_error") {
            expect(cut.heardHex()).toBe(whole.heardHex());
          }
        },
      ),
      { numRuns: 300 },
    );
  });

  test("acks leave in order of arrival for every order of completion", () => {
    const arrivals = fc.array(fc.constantFrom<0 | 1 | 2 | 3>(0, 1, 2, 3), {
      minLength: 1,
      maxLength: 60,
    });
    fc.assert(
      fc.property(arrivals, fc.infiniteStream(fc.nat()), (kinds, picks) => {
        const talk = new Conversation().say(connect5);
        talk.heardHex();
        const expected: string[] = [];
        kinds.forEach((kind, index) => {
          const id = index + 1;
          const packet: Packet = kind === 3 ? pubrel(id) : publishing(kind, kind === 0 ? 0 : id);
          talk.say(packet);
          if (kind > 0) expected.push(`${["", "puback", "pubrec", "pubcomp"][kind]} ${id} 0x0`);
        });
        const open = [...talk.tokens];
        const heard: string[] = [];
        while (open.length > 0) {
          const [token] = open.splice(picks.next().value % open.length, 1);
          talk.connection.completeAck(token!);
          heard.push(...talk.heardShort());
        }
        expect(heard).toEqual(expected);
      }),
      { numRuns: 200 },
    );
  });
});
