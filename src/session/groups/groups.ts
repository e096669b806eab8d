// The shared groups of this node, by their whole filters. A group is here while somebody is connected
// to it or a durable session subscribes to it.

import { toError } from "../../base/index.ts";
import type { Positions } from "../../store/index.ts";
import type { GroupInspector, GroupPage, GroupQuery, PageRequest } from "../api.ts";
import type { SessionContext } from "../context.ts";
import type { InFlightRecord } from "../core/records.ts";
import { checkedCount } from "../inspect/page.ts";
import { keyLevel } from "../keys.ts";
import type { Assignment } from "./assignments.ts";
import { SharedGroup } from "./group.ts";
import { type GroupHost, GroupStore } from "./group-store.ts";
import { type Groups, sharedTopicFilter } from "./member.ts";
import { boundName, boundRefs, listGroups, readStoredGroup } from "./stored-group.ts";

export class SharedGroups implements Groups, GroupInspector {
  readonly #context: SessionContext;
  readonly #groups = new Map<string, SharedGroup>();
  /** Of stored subscriptions, until `load`: where a group begins that is not stored itself. */
  readonly #loading = new Map<string, Positions>();

  constructor(context: SessionContext) {
    this.#context = context;
  }

  get count(): number {
    return this.#groups.size;
  }

  group(filter: string): SharedGroup {
    const known = this.#groups.get(filter);
    if (known !== undefined) return known;
    const names = { name: filter, filter: sharedTopicFilter(filter) ?? filter };
    const group = new SharedGroup(this.#context, names, () => {
      if (this.#groups.get(filter) === group) this.#groups.delete(filter);
    });
    this.#groups.set(filter, group);
    return group;
  }

  addInterest(clientId: string, filter: string, start: Positions): void {
    this.group(filter).durableJoined(keyLevel(clientId), start);
  }

  removeInterest(clientId: string, filter: string): void {
    this.#groups.get(filter)?.durableLeft(keyLevel(clientId));
  }

  created(filter: string): Promise<void> {
    return this.#groups.get(filter)?.created ?? Promise.resolve();
  }

  list({ prefix = "", backlog }: GroupQuery, page: PageRequest): GroupPage {
    const countMax = checkedCount(page);
    const names = [...this.#groups.keys()].filter((name) => name.startsWith(prefix)).sort();
    const all = names.flatMap((name) => this.#groups.get(name)?.summary ?? []);
    const found = all.filter((one) => backlog === undefined || one.backlog === backlog);
    const { after } = page;
    const rest = after === undefined ? found : found.filter(({ group }) => group > after);
    const groups = rest.slice(0, countMax);
    const next = rest.length > countMax ? groups.at(-1)?.group : undefined;
    return { groups, next, total: found.length };
  }

  // -------------------------------------------------------------- start and end

  /** A stored subscription; `member` is its client's level in keys. */
  loadInterest(member: string, filter: string, start: Positions): void {
    this.group(filter).durableLoaded(member);
    if (!this.#loading.has(filter)) this.#loading.set(filter, start);
  }

  /** Behind all subscriptions, before the store serves and anybody connects. */
  async load(): Promise<void> {
    const { stateShards } = this.#context.store;
    for (const shard of stateShards) {
      for (const name of await listGroups(shard, this.#onCorrupt)) await this.#loadStored(name);
    }
    for (const [filter, start] of this.#loading) this.group(filter).load({ start });
    this.#loading.clear();
    for (const group of this.#groups.values()) await this.#askMembers(group);
  }

  start(): void {
    for (const group of this.#groups.values()) group.start();
  }

  async resolve(
    clientId: string,
    inFlight: ReadonlyArray<{ readonly record: InFlightRecord }>,
  ): Promise<void> {
    const asking = [...this.#groups.values()].filter((group) => group.isUnsureOf(clientId));
    if (asking.length === 0) return;
    const bound = new Set(inFlight.map(({ record }) => boundName(record.source)));
    await Promise.all(asking.map((group) => group.resolve(clientId, isIn(bound, group))));
  }

  /** REQUIRES: no session is attached. */
  async close(): Promise<void> {
    const { logger } = this.#context;
    await Promise.all(
      [...this.#groups.values()].map((group) =>
        group.close().catch((error: unknown) => {
          // To the next start it ended without notice.
          logger.warn("session.group_close_failed", { group: group.clientId, error });
        }),
      ),
    );
  }

  async #loadStored(name: string): Promise<void> {
    const { store, logger } = this.#context;
    const shard = store.state(name);
    try {
      const stored = await readStoredGroup(shard, name, this.#onCorrupt);
      if (stored === undefined) return;
      if (this.#loading.delete(name)) {
        this.group(name).load(stored);
        return;
      }
      // Its last durable member has left, and the process ended before it was gone.
      const names = { context: this.#context, name, filter: sharedTopicFilter(name) ?? name };
      await new GroupStore({ ...names, host: nobody }, stored).remove();
    } catch (error) {
      // It begins anew, where its members' subscriptions begin.
      logger.error("session.group_unreadable", { group: name, reason: toError(error).message });
    }
  }

  async #askMembers(group: SharedGroup): Promise<void> {
    for (const clientId of group.unsureClients) {
      const shard = this.#context.store.state(clientId);
      const bound = await boundRefs(shard, clientId, this.#onCorrupt);
      await group.resolve(clientId, isIn(bound, group));
    }
  }

  readonly #onCorrupt = (key: string, error: unknown): void => {
    this.#context.counters.recordsCorrupt++;
    this.#context.logger.error("session.record_corrupt", { key, error });
  };
}

function isIn(bound: ReadonlySet<string | undefined>, { clientId }: SharedGroup) {
  return ({ ref }: Assignment): boolean =>
    bound.has(boundName({ kind: "log", ref, group: clientId }));
}

/** The host of a group that is only removed. */
const nobody: GroupHost = {
  isBusy: true,
  deal: () => "wait",
  returned: () => undefined,
  unsure: () => undefined,
  finished: () => undefined,
  ready: () => undefined,
};
