// The other nodes of a cluster as sessions see them.

import type { ClusterNode } from "../../cluster/index.ts";
import type { SessionNodes } from "../../session/index.ts";

export function sessionNodes({
  channel,
  host,
}: Pick<ClusterNode, "channel" | "host">): SessionNodes {
  return {
    node: channel.node,
    start: channel.start,
    peers: () => channel.peers(),
    startOf: (node) => channel.startOf(node),
    onPeersChanged: (listener) => channel.onPeersChanged(listener),
    ask: (node, kind, bytes, timeoutMs) => channel.ask(node, kind, bytes, timeoutMs),
    handle: (kind, handler) => channel.handle(kind, handler),
    leads: (shard) => host.group(shard)?.leader === channel.node,
  };
}
