// What counts as one address. A household or a machine with IPv6 has a whole /64 to connect from, so
// that is one; everybody on a Unix socket is local and has none.

/** Of `127.0.0.1:50312` or `[2001:db8::1]:50312`; undefined: not to be limited by address. */
export function addressKey(remote: string): string | undefined {
  const colon = remote.lastIndexOf(":");
  if (colon < 0) return undefined;
  const host = remote.slice(0, colon).replace(/^\[|\]$/g, "");
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(host)?.[1];
  if (mapped !== undefined) return mapped;
  return host.includes(":") ? networkOf(host) : host;
}

const wordsOfNetwork = 4;
const wordsOfAddress = 8;

function networkOf(address: string): string {
  const plain = address.split("%", 1)[0] ?? "";
  const [head = "", tail] = plain.split("::", 2);
  const before = head === "" ? [] : head.split(":");
  const after = tail === undefined || tail === "" ? [] : tail.split(":");
  const zeros = tail === undefined ? 0 : Math.max(0, wordsOfAddress - before.length - after.length);
  const words = [...before, ...new Array<string>(zeros).fill("0"), ...after];
  const network = words.slice(0, wordsOfNetwork).map((word) => Number.parseInt(word, 16));
  return `${network.map((word) => word.toString(16)).join(":")}::/64`;
}
