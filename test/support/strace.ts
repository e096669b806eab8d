// Watches the system calls of a running process with strace, to show from outside that a sync lies
// between what came in and what went out. Attaches to a process that a test started itself.

import { spawn } from "node:child_process";

export type SystemCall = {
  readonly name: string;
  /** Bytes read or written, as far as strace shows them; empty for other calls. */
  readonly data: Buffer;
  /** Begun or ended: a call of one thread may lie around calls of others. */
  readonly moment: "begun" | "ended";
};

export type Trace = { stop(): Promise<SystemCall[]> };

const calls = "read,recvfrom,recvmsg,write,writev,sendto,sendmsg,fsync,fdatasync";
const shownBytes = 256;

/** Resolves when strace watches all threads. */
export function traceProcess(pid: number): Promise<Trace> {
  const child = spawn(
    "strace",
    ["-f", "-p", String(pid), "-e", `trace=${calls}`, "-xx", "-s", String(shownBytes)],
    { stdio: ["ignore", "ignore", "pipe"] },
  );
  let said = "";
  const ended = new Promise<void>((resolve) => child.once("close", () => resolve()));
  const stop = async (): Promise<SystemCall[]> => {
    child.kill("SIGINT");
    await ended;
    return parseTrace(said);
  };
  return new Promise((resolve, reject) => {
    child.once("error", (error) => {
      reject(new Error(`cannot run strace (Debian: apt-get install strace): ${error.message}`));
    });
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      said += text;
      if (/Process \d+ attached/.test(said)) resolve({ stop });
    });
    ended.then(() => reject(new Error(`strace ended: ${said}`)));
  });
}

/** Begin and end of each call, in the order in which strace saw them. */
export function parseTrace(text: string): SystemCall[] {
  const found: SystemCall[] = [];
  const open = new Map<string, string>();
  for (const line of text.split("\n")) {
    const [, thread = "", rest = ""] = /^(?:\[pid\s+(\d+)\] )?(.*)$/.exec(line) ?? [];
    const resumed = /^<\.\.\. (\w+) resumed>(.*)$/.exec(rest);
    const begun = /^(\w+)\((.*)$/.exec(rest);
    if (resumed !== null) {
      const all = `${open.get(thread) ?? ""}${resumed[2]}`;
      open.delete(thread);
      found.push({ name: resumed[1] as string, data: dataOf(all), moment: "ended" });
    } else if (begun !== null) {
      const [, name = "", all = ""] = begun;
      found.push({ name, data: dataOf(all), moment: "begun" });
      if (all.endsWith("<unfinished ...>")) open.set(thread, all);
      else found.push({ name, data: dataOf(all), moment: "ended" });
    }
  }
  return found;
}

/** The quoted bytes of a call's arguments, several buffers joined. */
function dataOf(text: string): Buffer {
  const hex = [...text.matchAll(/"((?:\\x[0-9a-f]{2})*)"/g)].map(([, found]) => found);
  return Buffer.from(hex.join("").replaceAll("\\x", ""), "hex");
}

/**
 * Whole syncs, begun and ended, between the arrival of bytes that hold `request` and the sending of
 * bytes that hold `answer`. Undefined when either is missing.
 */
export function syncsBetween(
  trace: readonly SystemCall[],
  request: Buffer,
  answer: Buffer,
): number | undefined {
  const isInput = (name: string) => name === "read" || name.startsWith("recv");
  const isOutput = (name: string) => name.startsWith("write") || name.startsWith("send");
  const came = trace.findIndex(
    ({ name, data, moment }) => moment === "ended" && isInput(name) && data.includes(request),
  );
  const went = trace.findIndex(
    ({ name, data, moment }, at) =>
      at > came && moment === "begun" && isOutput(name) && data.includes(answer),
  );
  if (came < 0 || went < 0) return undefined;
  let begun = 0;
  let whole = 0;
  for (const { name, moment } of trace.slice(came + 1, went)) {
    if (name !== "fdatasync" && name !== "fsync") continue;
    if (moment === "begun") begun++;
    else if (whole < begun) whole++;
  }
  return whole;
}
