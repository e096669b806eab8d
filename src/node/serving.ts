// MQTT on an open store: users and rules, sessions, broker, listeners. It is the same for a node by
// itself and for a member of a cluster.
//
// Two steps, with the store's own start between them: its replay must know the filters of durable
// sessions. Nothing listens before the second.

import { type Clock, type Closer, isCodedError, type Logger, sleep } from "../base/index.ts";
import { type Broker, type BrokerComponents, createBroker } from "../broker/index.ts";
import type { NodeChannel } from "../cluster/index.ts";
import {
  consumedFloors,
  createSessions,
  type SessionComponents,
  type SessionNodes,
} from "../session/index.ts";
import type { LocalStore, MapShard } from "../store/index.ts";
import type { AssembleContext, Assembled, NodeParts } from "./assemble.ts";
import { InsideFace } from "./embed/inside.ts";
import { insideUser } from "./embed/subscription.ts";
import { openListeners } from "./listeners.ts";
import { brokerSettings, sessionSettings } from "./room-settings.ts";
import { openSecurity } from "./security/security.ts";
import { version } from "./version.ts";

/** What stands below. */
export type Place = {
  readonly store: LocalStore;
  /** Of a member of a cluster: words to the other nodes. */
  readonly channel?: NodeChannel;
  readonly peers?: BrokerComponents["peers"];
  readonly isStuck?: () => boolean;
  /** The same as sessions speak them. */
  readonly nodes?: SessionNodes;
  readonly createAcross?: SessionComponents["createAcross"];
};

export type Serving = {
  /** After the store has started. The closer owns what it opens. */
  begin(): Promise<
    Pick<Assembled, "listeners" | "security"> & { parts: Pick<NodeParts, "broker" | "inside"> }
  >;
};

/** Before the store starts. @throws what users, rules and stored sessions refuse to be read with. */
export async function prepareServing(
  context: AssembleContext,
  closer: Closer,
  { store, peers, isStuck, nodes, createAcross }: Place,
): Promise<Serving> {
  const { settings, components } = context;
  const { clock, random, logger, network, phase } = components;
  const { exchanges = [], memoryBytes = () => 0 } = components;
  const { meta } = store;
  const isShared = nodes !== undefined;
  const security = await openSecurity(settings, {
    ...{ clock, random, logger, meta, exchanges, isShared },
  });
  closer.defer(() => security.close());
  const hooks = phase === undefined ? {} : { phase };
  const broker = createBroker(brokerSettings(settings), {
    ...{ network, clock, random, logger, store, memoryBytes, version, access: security.access },
    ...{ hooks: components.hooks ?? [], reservedUser: insideUser },
    ...(peers === undefined ? {} : { peers }),
    ...(isStuck === undefined ? {} : { isStuck }),
    createSessions: (ports) =>
      createSessions(sessionSettings(settings), {
        ...{ store, clock, logger, nodes, createAcross, ...ports, ...hooks },
      }),
  });
  context.began("loading the filters of durable sessions");
  await broker.load();
  store.useConsumed(() => consumedFloors(store));
  return {
    begin: async () => {
      if (isShared) await caughtUp(meta, clock);
      if (isShared) warnOfGroups(broker, logger);
      closer.own(broker);
      broker.start();
      // Loops of the program end while the broker can still take their acknowledgements.
      const inside = closer.own(new InsideFace({ store, clock, broker }));
      const listeners = closer.own(
        await openListeners(settings, {
          listen: (name, at, options) => broker.listen(at, security.termsOf(name), options),
          certificates: security.certificates,
        }),
      );
      security.onChange(() => broker.recheck());
      return { listeners: listeners.bound, security, parts: { broker, inside } };
    },
  };
}

/** From the time when the data were those of a node by itself: new ones are refused. */
function warnOfGroups({ sessions }: Broker, logger: Logger): void {
  const { groups } = sessions.sharedGroups.list({}, { countMax: 1_000 });
  const names = groups.filter(({ durable }) => durable).map(({ group }) => group);
  if (names.length > 0) logger.warn("node.shared_groups_not_shared", { groups: names.join(" ") });
}

/** Who was locked out anywhere before does not get in here. Without a majority nobody gets in. */
async function caughtUp(meta: MapShard, clock: Clock): Promise<void> {
  for (;;) {
    try {
      return await meta.barrier();
    } catch (error) {
      if (!isCodedError(error) || error.kind !== "retry") throw error;
    }
    await sleep(clock, caughtUpRetryMs);
  }
}

const caughtUpRetryMs = 100;
