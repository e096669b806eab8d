// What a member of a cluster is assembled of: its replica of the store, and nothing of MQTT, which does
// not run on a cluster yet (docs/decisions/095-store-nodes.md).
//
// The way down: leaderships are handed over, a last checkpoint, then all that was opened.

import { Closer, type CodedError, createHistogram } from "../../base/index.ts";
import { type ClusterNode, openClusterNode } from "../../cluster/index.ts";
import type { AppendRequest } from "../../store/index.ts";
import type { Assemble, AssembleContext, Assembled, StoreMember } from "../assemble.ts";
import { codedError, lastCheckpoint, syncBoundsMs } from "../assembly.ts";
import { closeAfterFailure } from "../failed-start.ts";
import { clusterPort } from "./member-port.ts";
import { memberNetwork, memberSettings } from "./settings.ts";

/** Longer than the hand-over of one group, and no reason to hold up a stop where nobody takes it. */
const drainMs = 5_000;

export const assembleStoreNode: Assemble = async (context) => {
  const closer = new Closer();
  try {
    return await assembleMember(context, closer);
  } catch (error) {
    await closeAfterFailure(closer, context.components.logger);
    throw error;
  }
};

async function assembleMember(context: AssembleContext, closer: Closer): Promise<Assembled> {
  const { settings, dataDir, components } = context;
  const { clock, random, logger, disk, kv } = components;
  const syncTimes = createHistogram(syncBoundsMs);
  let isFailed = false;
  const member = closer.own(
    await openClusterNode(memberSettings(settings, dataDir), {
      ...{ disk, kv, clock, random, logger, syncTimes },
      network: await memberNetwork(settings, components.network),
      onFull: (full) => full && context.spendBallast(),
      onPhase: (phase) => {
        context.began(phase);
        logger.info("cluster.starting", { phase });
      },
      onFailure: (error) => {
        isFailed = true;
        context.fail(codedError(error));
      },
      stop: new AbortController().signal,
    }),
  );
  const { store, log } = member;
  closer.defer(() => (isFailed ? undefined : lastCheckpoint(store, clock, logger)));
  closer.defer(() => (isFailed || isAlone(member) ? undefined : member.controller.drain(drainMs)));
  const parts = { log, store, syncTimes, member: memberOf(member, settings.cluster.node) };
  return { listeners: [], parts, close: () => closer.close() };
}

function isAlone({ roster, node }: ClusterNode): boolean {
  return [...roster.roster.sites.values()].every(
    (site) => site.node === node || site.state === "left",
  );
}

function memberOf(member: ClusterNode, name: string): StoreMember {
  const { node, roster, host, store, logs } = member;
  return {
    name,
    label: `${name} (node ${node}) of the cluster ${roster.roster.cluster}`,
    port: clusterPort(member),
    append: (request: AppendRequest) =>
      new Promise<void>((resolve, reject) => {
        store.append(request, (error: CodedError | undefined) =>
          error === undefined ? resolve() : reject(error),
        );
      }),
    leaderless: () => host.status().flatMap(({ group, leader }) => (leader === 0 ? [group] : [])),
    counters: logs.counters,
  };
}
