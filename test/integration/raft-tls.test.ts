// Mutual TLS between two Raft transports over real sockets.

import { expect, test } from "vitest";
import { nodeNetwork, silentLogger, systemClock } from "../../src/base/index.ts";
import { encodeFrame } from "../../src/raft/host/frames.ts";
import {
  createTlsNetwork,
  defaultStreamSettings,
  type Member,
  type PeerCertificates,
  StreamTransport,
} from "../../src/raft/index.ts";
import * as pem from "../support/raft-certificates.ts";

const { authority } = pem;
const ofNode1 = { certificate: pem.node1Certificate, key: pem.node1Key, authority };
const ofNode2 = { certificate: pem.node2Certificate, key: pem.node2Key, authority };
const ofStranger = { certificate: pem.strangerCertificate, key: pem.strangerKey, authority };

type Site = {
  transport: StreamTransport;
  member: Member;
  frames: string[];
  send(to: Site): boolean;
};

async function site(number: number, certificates?: PeerCertificates): Promise<Site> {
  const siteId = String(number).padStart(32, "0");
  const identity = { clusterId: "c1".repeat(16), siteId, diskId: siteId };
  const network = certificates ? createTlsNetwork(certificates) : nodeNetwork;
  const listen = { host: "127.0.0.1", port: 0 };
  const transport = new StreamTransport(
    { ...defaultStreamSettings, listen },
    { network, clock: systemClock, logger: silentLogger, identity },
  );
  const frames: string[] = [];
  await transport.start({
    onFrame: (frame) => frames.push(frame.subarray(56, -4).toString()),
    onDown: () => undefined,
  });
  const { address } = transport;
  const name = `node${number}`;
  const member = { node: number, siteId, diskId: siteId, name, address, removed: false };
  const frame = encodeFrame(identity, "messages", Buffer.from(`from ${number}`));
  return { transport, member, frames, send: (to) => transport.send(to.member.siteId, frame) };
}

async function until(done: () => boolean, withinMs = 10_000): Promise<boolean> {
  const endMs = performance.now() + withinMs;
  while (!done()) {
    if (performance.now() > endMs) return false;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  return true;
}

async function meet(one: Site, two: Site): Promise<void> {
  one.transport.setPeers([two.member]);
  two.transport.setPeers([one.member]);
}

test("two members of one authority talk", async () => {
  const [one, two] = [await site(1, ofNode1), await site(2, ofNode2)];
  await meet(one, two);
  expect(await until(() => one.send(two) && two.send(one))).toBe(true);
  expect(await until(() => one.frames.length > 0 && two.frames.length > 0)).toBe(true);
  expect(two.frames[0]).toBe("from 1");
  await one.transport.close();
  await two.transport.close();
});

test("a certificate of another authority, of another member, or none at all is refused", async () => {
  const cases: Array<[PeerCertificates | undefined, string]> = [
    [ofStranger, "another authority"],
    [ofNode1, "the certificate of another member"],
    [undefined, "no TLS"],
  ];
  for (const [certificates, what] of cases) {
    const [one, two] = [await site(1, ofNode1), await site(2, certificates)];
    await meet(one, two);
    const got = await until(() => one.send(two) || two.send(one), 1_000);
    expect([what, got]).toEqual([what, false]);
    expect([one.frames, two.frames]).toEqual([[], []]);
    await one.transport.close();
    await two.transport.close();
  }
});
