// Copies what another Aedes persistence has stored into ours: subscriptions, queues, retained packets,
// wills and QoS 2 packets, in this order, with progress. Nothing of the source is changed.
//
// A source is a reader of a stored format (`level`, `redis`, `mongodb` in sources.ts) or any list of
// items. Copying again is safe for all but queues: a client whose queue is not empty here is left
// alone, so that a run that was broken off and begun anew doubles nothing of the clients it did.

import type { StorePersistence } from "./persistence.ts";
import type { AedesPacket, AedesSubscription } from "./types.ts";

/** One thing that the source has. */
export type MigrationItem =
  | {
      readonly kind: "subscription";
      readonly clientId: string;
      readonly subscription: AedesSubscription;
    }
  /** In the order of their queue. */
  | { readonly kind: "queued"; readonly clientId: string; readonly packet: AedesPacket }
  | { readonly kind: "inbound"; readonly clientId: string; readonly packet: AedesPacket }
  | { readonly kind: "retained"; readonly packet: AedesPacket }
  | { readonly kind: "will"; readonly clientId: string; readonly packet: AedesPacket };

export type MigrationSource = {
  /** For messages: `level`. */
  readonly name: string;
  items(): AsyncIterable<MigrationItem>;
};

export type MigrationCounts = Readonly<Record<MigrationItem["kind"], number>> & {
  /** Queued packets of clients that had a queue here before. */
  readonly skipped: number;
};

export type MigrationOptions = {
  /** Reads and counts only. */
  readonly dryRun?: boolean;
  /** Told after every so many items, and at the end. */
  readonly onProgress?: (counts: MigrationCounts) => void;
  /** Default 1,000. */
  readonly progressEvery?: number;
};

/** REQUIRES: `setup` of the target is done. @throws AEDES_MIGRATION_SOURCE_INVALID, AEDES_CLOSED. */
export async function migrate(
  source: MigrationSource,
  target: StorePersistence,
  options: MigrationOptions = {},
): Promise<MigrationCounts> {
  const { dryRun = false, onProgress = () => undefined, progressEvery = 1000 } = options;
  const counts = { subscription: 0, queued: 0, inbound: 0, retained: 0, will: 0, skipped: 0 };
  const copier = new Copier(target, dryRun);
  let items = 0;
  for await (const item of source.items()) {
    if (await copier.copy(item)) counts[item.kind]++;
    else counts.skipped++;
    items++;
    if (items % progressEvery === 0) onProgress({ ...counts });
  }
  onProgress({ ...counts });
  return counts;
}

class Copier {
  readonly #target: StorePersistence;
  readonly #dryRun: boolean;
  /** Clients of this run, and whether their queues are copied. */
  readonly #queues = new Map<string, boolean>();

  constructor(target: StorePersistence, dryRun: boolean) {
    this.#target = target;
    this.#dryRun = dryRun;
  }

  /** False: left alone. */
  async copy(item: MigrationItem): Promise<boolean> {
    if (item.kind === "queued" && !(await this.#isQueueNew(item.clientId))) return false;
    if (!this.#dryRun) await this.#write(item);
    return true;
  }

  async #write(item: MigrationItem): Promise<void> {
    const target = this.#target;
    switch (item.kind) {
      case "subscription":
        return target.addSubscriptions({ id: item.clientId }, [item.subscription]);
      case "queued":
        return this.#writeQueued(item.clientId, item.packet);
      case "inbound":
        return target.incomingStorePacket({ id: item.clientId }, item.packet);
      case "retained":
        return target.storeRetained(item.packet);
      case "will":
        return target.restoreWill(item.clientId, item.packet);
    }
  }

  /** A packet keeps the message id under which it was sent: its client may know it. */
  async #writeQueued(clientId: string, packet: AedesPacket): Promise<void> {
    const { messageId } = packet;
    const client = { id: clientId };
    if (packet.cmd === "pubrel") {
      // Its message is done with; a name is needed for the moment between the two calls.
      const name = { brokerId: "migration", brokerCounter: messageId ?? 0 };
      await this.#target.outgoingEnqueue({ clientId }, { topic: "", qos: 2, ...name });
      await this.#target.outgoingUpdate(client, { cmd: "publish", messageId, ...name });
      await this.#target.outgoingUpdate(client, { cmd: "pubrel", messageId });
      return;
    }
    await this.#target.outgoingEnqueue({ clientId }, packet);
    if (typeof messageId === "number") await this.#target.outgoingUpdate(client, packet);
  }

  async #isQueueNew(clientId: string): Promise<boolean> {
    let isNew = this.#queues.get(clientId);
    if (isNew === undefined) {
      const stream = this.#target.outgoingStream({ id: clientId });
      isNew = true;
      for await (const _ of stream) {
        isNew = false;
        break;
      }
      this.#queues.set(clientId, isNew);
    }
    return isNew;
  }
}
