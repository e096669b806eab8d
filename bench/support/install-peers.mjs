// Peers that the benches run beside Flagstone. Debian's are installed with apt-get where they are
// missing and we may; Aedes is a development dependency of this package.

import { spawnSync } from "node:child_process";
import { has } from "./machine.mjs";

const debian = {
  mosquitto: { package: "mosquitto", program: "/usr/sbin/mosquitto" },
  nats: { package: "nats-server", program: "/usr/sbin/nats-server" },
};

/** Installs the Debian peers among `names`; says which are left out. */
export function installPeers(names) {
  for (const name of names) {
    const peer = debian[name];
    if (peer === undefined || has(peer.program)) continue;
    if (has("apt-get") && process.getuid?.() === 0) {
      const args = ["install", "-y", "--no-install-recommends", peer.package];
      spawnSync("apt-get", args, { stdio: ["ignore", "ignore", "inherit"] });
    }
    if (has(peer.program)) continue;
    process.stderr.write(`${name} is left out: install Debian's package ${peer.package}\n`);
  }
}
