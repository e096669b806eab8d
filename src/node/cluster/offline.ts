// What becomes of the data directory of a stopped node: the first replica of a cluster, or the empty
// disk of a site that joins; or a member that goes on alone. Under the directory's lock, so that no
// node runs on it.

import { Closer, formatAddress } from "../../base/index.ts";
import {
  becomeFirstReplica,
  becomeMember,
  type FirstReplica,
  isMemberDir,
  type MemberSurvey,
  prepareSite,
  recoverMember as recoverDirectory,
  surveyMember as surveyDirectory,
} from "../../cluster/index.ts";
import type { Components } from "../assemble.ts";
import { parseHostPort } from "../config/cluster-rules.ts";
import type { Settings } from "../config/keys.ts";
import { openDataDir } from "../data-dir.ts";
import { localComponents } from "../local.ts";
import { memberSettings, ownAddressOf } from "./settings.ts";

export type { MemberSurvey };

/** @throws NODE_DATA_DIR_*, CLUSTER_INIT_REFUSED, and what log and store refuse to open with. */
export async function initCluster(
  settings: Settings,
  given: Partial<Components> = {},
): Promise<FirstReplica> {
  const components = { ...localComponents(), ...given };
  const closer = new Closer();
  try {
    const dataDir = closer.own(await openDataDir(settings.data.dir, components, "init"));
    const { dir, name, log, store } = memberSettings(settings, dataDir);
    return await becomeFirstReplica(
      {
        ...{ dir, name, log, store },
        cluster: settings.cluster.name,
        address: ownAddressOf(settings),
      },
      { ...components, beforeSwitch: () => dataDir.markReplica() },
    );
  } finally {
    await closer.close();
  }
}

/** What a member of the cluster needs to know of a site that joins. */
export type Applicant = {
  readonly siteId: string;
  readonly diskId: string;
  readonly name: string;
  readonly address: string;
  readonly zone: string;
};

/** A member takes the site in, and says whom the cluster has. */
export type Welcome = (applicant: Applicant) => Promise<{
  readonly node: number;
  readonly members: ReadonlyArray<Omit<Applicant, "zone"> & { node: number; removed: boolean }>;
}>;

/**
 * Resolves with the number of the new member, which may then be started. May be repeated.
 * @throws NODE_DATA_DIR_*, CLUSTER_DIR_IN_USE, and what the member refuses.
 */
export async function joinCluster(
  settings: Settings,
  clusterId: string,
  welcome: Welcome,
  given: Partial<Components> = {},
): Promise<number> {
  const components = { ...localComponents(), ...given };
  const { disk, random } = components;
  const closer = new Closer();
  try {
    const { path: dir } = closer.own(await openDataDir(settings.data.dir, components, "member"));
    const { siteId, diskId } = await prepareSite(disk, { dir, clusterId, random });
    const { node: name, zone } = settings.cluster;
    const address = formatAddress(ownAddressOf(settings));
    const { node, members } = await welcome({ siteId, diskId, name, address, zone });
    if (await isMemberDir(disk, dir)) return node;
    await becomeMember(
      disk,
      dir,
      members.map(({ address: text, ...each }) => {
        return { ...each, address: parseHostPort(text) ?? { path: text } };
      }),
    );
    return node;
  } finally {
    await closer.close();
  }
}

/** What a stopped member holds. @throws NODE_DATA_DIR_*, CLUSTER_NOT_MEMBER. */
export function surveyMember(
  settings: Settings,
  given: Partial<Components> = {},
): Promise<MemberSurvey> {
  return withMember(settings, given, surveyDirectory);
}

/**
 * Makes a stopped member the only voter of its groups.
 * @throws NODE_DATA_DIR_*, CLUSTER_NOT_MEMBER, CLUSTER_RECOVERY_REFUSED.
 */
export function recoverMember(
  settings: Settings,
  typed: string,
  given: Partial<Components> = {},
): Promise<MemberSurvey> {
  return withMember(settings, given, (place, components) =>
    recoverDirectory(place, typed, components),
  );
}

async function withMember<T>(
  settings: Settings,
  given: Partial<Components>,
  run: (place: Parameters<typeof surveyDirectory>[0], components: Components) => Promise<T>,
): Promise<T> {
  const components = { ...localComponents(), ...given };
  const closer = new Closer();
  try {
    const dataDir = closer.own(await openDataDir(settings.data.dir, components, "member"));
    const { dir, log } = memberSettings(settings, dataDir);
    return await run({ dir, log, cluster: settings.cluster.name }, components);
  } finally {
    await closer.close();
  }
}
