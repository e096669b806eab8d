// Known-bad hosts: each breaks one rule of the host on purpose. The simulation must find every one
// of them; if it does not, it is the simulation that is broken.

export const flawNames = [
  "ack_before_sync",
  "report_before_sync",
  "vote_not_persisted",
  "sync_lies",
  "wiped_disk_returns",
  "truncation_not_persisted",
  "snapshot_keeps_configuration",
  "read_without_round",
  "read_before_applied",
  "client_acked_at_proposal",
  "applied_index_apart_from_data",
  "stale_hard_state",
  "snapshot_promised_not_kept",
  "rot_unnoticed",
] as const;

export type FlawName = (typeof flawNames)[number];

export const flawHelp: Readonly<Record<FlawName, string>> = {
  ack_before_sync: "messages that promise a record leave before its sync",
  report_before_sync: "the core is told that a record is durable before it is",
  vote_not_persisted: "a crash loses the vote of the current term",
  sync_lies: "a crash loses entries that were synced",
  wiped_disk_returns: "a node whose disk was lost starts empty under its old name",
  truncation_not_persisted: "a replaced suffix comes back with a crash",
  snapshot_keeps_configuration: "an installed snapshot keeps the node's old configuration",
  read_without_round: "a node serves reads from what it has applied, without asking",
  read_before_applied: "a read is served before its index is applied",
  client_acked_at_proposal: "a client is answered when its command is appended",
  applied_index_apart_from_data: "after a crash the applied index is newer than the data",
  stale_hard_state: "a crash brings back the hard state before the last",
  snapshot_promised_not_kept: "a snapshot is acknowledged and not installed",
  rot_unnoticed: "a node that lost synced entries goes on as if nothing had happened",
};
