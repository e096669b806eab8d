// The cluster as its members' HTTP interface sees it.

import type { ClusterPort, ClusterView, JoinedCluster } from "../../admin/index.ts";
import { formatAddress, type ListenAddress } from "../../base/index.ts";
import { type ClusterNode, membersOf, rosterGroup } from "../../cluster/index.ts";
import { parseHostPort } from "../config/cluster-rules.ts";
import { nodeErrors } from "../errors.ts";

export function clusterPort(member: ClusterNode): ClusterPort {
  const { roster } = member;
  return {
    look: () => look(member),
    join: async (site) => {
      const { address, ...rest } = site;
      await roster.change({ kind: "join", site: { ...rest, address: addressOf(address) } });
      return joined(member, site.siteId);
    },
    steer: async (verb, node) => {
      await roster.change({ kind: verb, node });
    },
    move: async (node, address, zone) => {
      const known = roster.roster.sites.get(node)?.zone ?? "";
      const to = addressOf(address);
      await roster.change({ kind: "moved", node, address: to, zone: zone ?? known });
    },
    setReplicas: async (count) => {
      await roster.change({ kind: "replicas", count });
    },
  };
}

/** @throws NODE_ARGUMENT_INVALID. */
function addressOf(text: string): ListenAddress {
  const address = parseHostPort(text);
  if (address !== undefined) return address;
  const reason = `${JSON.stringify(text)} is no host and port such as node1.example.org:7400`;
  throw nodeErrors.argumentInvalid({ what: "address", reason });
}

async function look(member: ClusterNode): Promise<ClusterView> {
  const { roster, host, store, identity, node } = member;
  const heard = new Map((await roster.heard()).map((each) => [each.node, each.aheadMs]));
  const { cluster, replicas, sites } = roster.roster;
  const status = host.status();
  const databases = new Map(
    store.operator.shards().map(({ number, database }) => [number, database]),
  );
  return {
    ...{ name: cluster, clusterId: identity.clusterId, node, replicas },
    hasMajority: status.every(({ leader }) => leader !== 0),
    sites: [...sites.values()].map((site) => {
      const aheadMs = heard.get(site.node);
      return {
        ...{ node: site.node, name: site.name, zone: site.zone, state: site.state },
        address: formatAddress(site.address),
        answers: site.node === node || aheadMs !== undefined,
        ...(aheadMs === undefined ? {} : { aheadMs: -Math.round(aheadMs) }),
        leads: status.filter(({ leader }) => leader === site.node).length,
      };
    }),
    groups: status
      .map(({ group, leader, state, applied, commit, configuration }) => {
        const database = group === rosterGroup ? undefined : databases.get(group);
        return {
          group,
          ...(database === undefined ? {} : { database }),
          ...{ leader, state, applied, commit },
          voters: [...configuration.voters],
          learners: [...configuration.learners],
        };
      })
      .sort((one, other) => one.group - other.group),
  };
}

/** Behind the roster's own word: what was committed before is applied here. */
async function joined({ roster }: ClusterNode, siteId: string): Promise<JoinedCluster> {
  await roster.group.read();
  const members = membersOf(roster.roster).map((each) => {
    return { ...each, address: formatAddress(each.address) };
  });
  const node = members.find((each) => each.siteId === siteId)?.node ?? 0;
  return { node, members };
}
