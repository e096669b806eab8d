import { expect, test } from "vitest";
import { ByteWriter, SeededRandom, SimClock } from "../../../../src/base/index.ts";
import { OwnInterest } from "../../../../src/broker/peers/interest.ts";
import {
  decodeInterest,
  wants,
  writeAddressees,
  writeMessage,
} from "../../../../src/broker/peers/peer-codec.ts";
import type { PeerWords } from "../../../../src/broker/peers/ports.ts";
import { clusterErrors } from "../../../../src/cluster/index.ts";

/** One peer that answers as it is told, and what it has heard. */
class Peer implements PeerWords {
  readonly heard = new Map<string, number>();
  readonly words: string[] = [];
  refusal: Error | undefined;

  peers(): readonly number[] {
    return [2];
  }

  onPeersChanged(): () => void {
    return () => undefined;
  }

  tell(): boolean {
    return true;
  }

  handle(): void {
    // It says nothing itself.
  }

  async ask(_node: number, _kind: string, bytes: Uint8Array): Promise<Uint8Array> {
    if (this.refusal !== undefined) throw this.refusal;
    const { isFirst, isComplete, filters } = decodeInterest(bytes);
    this.words.push(
      `${isFirst ? "first" : "more"} ${filters.length}${isComplete ? "" : " of more"}`,
    );
    if (isFirst) this.heard.clear();
    for (const [filter, want] of filters) {
      if (want === wants.nothing) this.heard.delete(filter);
      else this.heard.set(filter, want);
    }
    return bytes;
  }
}

function create(): { peer: Peer; clock: SimClock; interest: OwnInterest } {
  const clock = new SimClock({ random: new SeededRandom(1) });
  const peer = new Peer();
  return { peer, clock, interest: new OwnInterest(peer, clock) };
}

test("what a peer did not take is told again, all of it where it was the first word", async () => {
  const { peer, clock, interest } = create();
  for (const refusal of [clusterErrors.peerBusy({ node: 2 }), clusterErrors.peerFailed({})]) {
    peer.heard.set("of an earlier time", wants.all);
    interest.count(`a ${refusal.code}`, "all", 1);
    interest.reached(2);
    peer.refusal = refusal;
    await clock.advance(10);
    expect(interest.settled()).toBeInstanceOf(Promise);
    interest.count(`b ${refusal.code}`, "unstored", 1);
    peer.refusal = undefined;
    await clock.advance(2_000);
    expect(interest.settled()).toBeUndefined();
    expect(peer.heard.has("of an earlier time")).toBe(false);
    expect(peer.heard.get(`a ${refusal.code}`)).toBe(wants.all);
    expect(peer.heard.get(`b ${refusal.code}`)).toBe(wants.unstored);
    peer.refusal = refusal;
    interest.count(`a ${refusal.code}`, "all", -1);
    await clock.advance(10);
    peer.refusal = undefined;
    await clock.advance(2_000);
    expect(peer.heard.has(`a ${refusal.code}`)).toBe(false);
  }
});

test("changes of one turn are one word, and what has not changed for others is none", async () => {
  const { peer, clock, interest } = create();
  interest.reached(2);
  await clock.advance(10);
  for (let at = 0; at < 100; at++) interest.count(`t/${at}`, "all", 1);
  await clock.advance(10);
  for (let at = 0; at < 100; at++) interest.count(`t/${at}`, "all", 1);
  for (let at = 0; at < 100; at++) interest.count(`t/${at}`, "unstored", 1);
  await clock.advance(10);
  expect(peer.words).toEqual(["first 0", "more 100"]);
});

test("a message looks like the example in docs/formats/raft.md", () => {
  const writer = new ByteWriter();
  writeMessage(writer, {
    ...{ topic: "t", timeUs: 0, publisher: "p", form: "raw", qos: 1, retain: false },
    ...{ expiryUs: 0, expiryOffset: 0, frame: Buffer.from("v") },
  });
  writeAddressees(writer, { isStored: false, isForAll: true, groups: [] });
  expect(writer.finish().toString("hex")).toBe("040174017000000001760200");
});
