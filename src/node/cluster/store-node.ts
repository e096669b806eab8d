// What a store node is assembled of: its replica of the store, and nothing of MQTT
// (docs/decisions/095-store-nodes.md). A member that serves MQTT begins with the same.
//
// The way down: leaderships are handed over, a last checkpoint, then all that was opened.

import { Closer, type CodedError, createHistogram } from "../../base/index.ts";
import {
  type ClusterNode,
  type ClusterNodeComponents,
  openClusterNode,
} from "../../cluster/index.ts";
import type { AppendRequest } from "../../store/index.ts";
import type { Assemble, AssembleContext, NodeParts, StoreMember } from "../assemble.ts";
import { codedError, lastCheckpoint, syncBoundsMs } from "../assembly.ts";
import { closeAfterFailure } from "../failed-start.ts";
import { clusterPort } from "./member-port.ts";
import { memberNetwork, memberSettings } from "./settings.ts";

/** Longer than the hand-over of one group, and no reason to hold up a stop where nobody takes it. */
const drainMs = 5_000;

export const assembleStoreNode: Assemble = async (context) => {
  const closer = new Closer();
  try {
    // Its channel does not begin: no client of another node has anything to wait for here.
    const { parts } = await openMember(context, closer);
    return { listeners: [], parts, close: () => closer.close() };
  } catch (error) {
    await closeAfterFailure(closer, context.components.logger);
    throw error;
  }
};

export type OpenMember = { readonly member: ClusterNode; readonly parts: NodeParts };

/** The closer owns it. `prepare` runs with the map databases open, before the logs of messages are. */
export async function openMember(
  context: AssembleContext,
  closer: Closer,
  prepare: ClusterNodeComponents["prepare"] = async () => undefined,
): Promise<OpenMember> {
  const { settings, dataDir, components } = context;
  const { clock, random, logger, disk, kv } = components;
  const syncTimes = createHistogram(syncBoundsMs);
  let isFailed = false;
  const member = closer.own(
    await openClusterNode(memberSettings(settings, dataDir), {
      ...{ disk, kv, clock, random, logger, syncTimes },
      network: await memberNetwork(settings, components.network),
      prepare,
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
  return { member, parts };
}

function isAlone({ roster, node }: ClusterNode): boolean {
  return [...roster.roster.sites.values()].every(
    (site) => site.node === node || site.state === "left",
  );
}

function memberOf(member: ClusterNode, name: string): StoreMember {
  const { node, roster, host, store, logs, channel } = member;
  return {
    name,
    label: `${name} (node ${node}) of the cluster ${roster.roster.cluster}`,
    port: clusterPort(member),
    channel,
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
