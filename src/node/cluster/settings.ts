// The configuration of a member of a cluster as the settings of the cluster's room.

import type { ListenAddress, Network } from "../../base/index.ts";
import type { ClusterNodeSettings, Founding } from "../../cluster/index.ts";
import { createTlsNetwork, defaultHostSettings } from "../../raft/index.ts";
import { parseHostPort, parseSeed } from "../config/cluster-rules.ts";
import type { Settings } from "../config/keys.ts";
import type { DataDir } from "../data-dir.ts";
import { dataPaths, logSettings, storeSettings } from "../room-settings.ts";
import { readSecurityFile } from "../security/files.ts";

export function memberSettings(
  settings: Settings,
  { path, space }: Pick<DataDir, "path" | "space">,
): ClusterNodeSettings {
  const { node, host, port } = settings.cluster;
  const {
    dir: _dir,
    quarantineDir: _quarantineDir,
    ...store
  } = storeSettings(settings, dataPaths(path));
  return {
    ...{ dir: path, name: node, founding: foundingOf(settings), listen: { host, port } },
    ...{ raft: defaultHostSettings, log: logSettings(settings, space), store },
  };
}

/** Undefined where this node forms no cluster. */
function foundingOf({ cluster }: Settings): Founding | undefined {
  if (cluster.expect === 0) return undefined;
  const seeds = cluster.seeds.map(parseSeed).filter((seed) => seed !== undefined);
  return { cluster: cluster.name, members: seeds };
}

/** Where other members reach this node. */
export function ownAddressOf({ cluster }: Settings): ListenAddress {
  const { host, port } = cluster;
  return parseHostPort(cluster.address) ?? { host, port };
}

/** Of members: mutual TLS where there are certificates. @throws NODE_SECURITY_FILE_UNREADABLE. */
export async function memberNetwork({ cluster }: Settings, plain: Network): Promise<Network> {
  const { cert, key, ca } = cluster.tls;
  if (cert === "") return plain;
  const files = [cert, key, ca].map(readSecurityFile);
  const [certificate = "", privateKey = "", authority = ""] = await Promise.all(files);
  return createTlsNetwork({ certificate, key: privateKey, authority });
}
