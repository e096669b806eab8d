// Sites of a cluster: who there is, and who comes and goes.

import { adminErrors } from "../errors.ts";
import type { Handlers, Running } from "../handler-types.ts";
import type { ClusterPort } from "../ports.ts";

export type ClusterHandlers = Handlers<
  "getCluster" | "joinCluster" | "steerSite" | "moveSite" | "setReplicas"
>;

export function clusterHandlers(running: Running): ClusterHandlers {
  const cluster = (): ClusterPort => {
    const port = running().cluster;
    if (port === undefined) throw adminErrors.notClustered({});
    return port;
  };
  return {
    getCluster: () => cluster().look(),
    joinCluster: ({ body }) => cluster().join(body),
    steerSite: async ({ params: { node, verb } }) => {
      await cluster().steer(verb, node);
      return { done: true };
    },
    moveSite: async ({ params: { node }, body: { address, zone } }) => {
      await cluster().move(node, address, zone);
      return { done: true };
    },
    setReplicas: async ({ body: { count } }) => {
      await cluster().setReplicas(count);
      return { done: true };
    },
  };
}
