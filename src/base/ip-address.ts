// IP addresses as texts: exactly what is one, each address with one spelling, so that limits, lists
// and logs mean the same peer by the same text. Zones (`fe80::1%eth0`) are this machine's own matter
// and are no part of an address that somebody tells.

import net from "node:net";

/** Four numbers up to 255, without leading zeros: what reads them as octal has another address. */
export function isIpv4(text: string): boolean {
  return net.isIPv4(text);
}

/** The shortest spelling, with IPv4 as IPv4; undefined: no IPv6 address. */
export function plainIpv6(text: string): string | undefined {
  if (!net.isIPv6(text) || text.includes("%")) return undefined;
  return plainAddress(new net.SocketAddress({ address: text, family: "ipv6" }).address);
}

/** IPv4 as IPv4, also where a socket of both families accepted it. */
export function plainAddress(address: string): string {
  return address.startsWith("::ffff:") && address.includes(".") ? address.slice(7) : address;
}
