// Clients that can take less than they can say: before MQTT 5 a device with two kilobytes of memory
// has no way to announce it. A profile gives such clients a size above which nothing is sent to them,
// and a pace for what is.

export type DeviceProfile = {
  /** Client ids with `*` for any text; the first profile that fits a client counts. */
  readonly clientIds: readonly string[];
  /** Larger packets are left out, as with a Maximum Packet Size; Infinity: none. */
  readonly packetBytesMax: number;
  /** Messages sent in a second; more wait, QoS 0 ones that have no queue are dropped. */
  readonly messagesPerS: number;
};

export function deviceProfileOf(
  profiles: readonly DeviceProfile[],
  clientId: string,
): DeviceProfile | undefined {
  return profiles.find(({ clientIds }) => clientIds.some((glob) => fits(glob, clientId)));
}

/** Greedy, with one step back: linear in the text for each star, whatever the pattern. */
export function fits(glob: string, text: string): boolean {
  let [at, from] = [0, 0];
  let star = -1;
  let mark = 0;
  while (from < text.length) {
    if (glob[at] === "*") {
      star = at++;
      mark = from;
    } else if (at < glob.length && glob[at] === text[from]) {
      at++;
      from++;
    } else if (star >= 0) {
      at = star + 1;
      from = ++mark;
    } else {
      return false;
    }
  }
  while (glob[at] === "*") at++;
  return at === glob.length;
}
