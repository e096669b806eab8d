// Rules on the files that deploy the broker: container image, compose file, systemd unit. They check
// what goes wrong unseen until production: a root user, a shell that swallows SIGTERM, a moving tag,
// a path that the build does not make.

import { parse } from "yaml";

export type Instruction = { readonly name: string; readonly value: string; readonly line: number };

/** Instructions of a Dockerfile, continued lines joined, comments left out. */
export function parseDockerfile(text: string): Instruction[] {
  const found: Instruction[] = [];
  let open: { value: string; line: number } | undefined;
  text.split("\n").forEach((content, index) => {
    if (/^\s*(#|$)/.test(content)) return;
    const line = open?.line ?? index + 1;
    const value = `${open?.value ?? ""}${content.trim()}`;
    if (value.endsWith("\\")) {
      open = { value: value.slice(0, -1), line };
      return;
    }
    open = undefined;
    const [, name = "", rest = ""] = /^(\S+)\s*(.*)$/.exec(value) ?? [];
    found.push({ name: name.toUpperCase(), value: rest, line });
  });
  return found;
}

export function dockerfileFaults(text: string): string[] {
  const all = parseDockerfile(text);
  const starts = all.filter(({ name }) => name === "FROM");
  const lastStage = all.slice(all.lastIndexOf(starts.at(-1) as Instruction));
  const last = (name: string) => lastStage.filter((found) => found.name === name).at(-1);
  const faults: string[] = [];
  const report = (line: number | undefined, message: string) =>
    faults.push(`${line === undefined ? "" : `line ${line}: `}${message}`);
  if (starts.length < 2) report(undefined, "one stage: build tools would ship with the image");
  const stages = new Set<string>();
  for (const { value, line } of starts) {
    const [image = "", , stage] = value.split(/\s+/);
    if (!stages.has(image) && !/:\d+\.\d+/.test(image)) report(line, `${image}: no exact tag`);
    if (stage !== undefined) stages.add(stage);
  }
  const user = last("USER");
  if (user === undefined) report(undefined, "the last stage has no USER");
  else if (/^(root|0)(:|$)/.test(user.value)) report(user.line, "the broker would run as root");
  for (const name of ["ENTRYPOINT", "CMD"]) {
    const found = last(name);
    if (found === undefined) report(undefined, `the last stage has no ${name}`);
    else if (!isExecForm(found.value))
      report(found.line, `${name} runs a shell: use ["...", "..."]`);
  }
  const health = last("HEALTHCHECK");
  const check = /CMD\s+(.*)$/.exec(health?.value ?? "")?.[1];
  if (check === undefined) report(undefined, "the last stage has no HEALTHCHECK");
  else if (!isExecForm(check)) report(health?.line, "HEALTHCHECK runs a shell");
  for (const name of ["VOLUME", "EXPOSE", "STOPSIGNAL"]) {
    if (last(name) === undefined) report(undefined, `the last stage has no ${name}`);
  }
  for (const { name, value, line } of all) {
    if (name === "ADD") report(line, "ADD unpacks and downloads; use COPY");
    if (name === "RUN" && /npm (i|install)\b/.test(value)) report(line, "npm ci keeps to the lock");
    if (name === "RUN" && /\bsudo\b|curl [^|]*\| *(ba)?sh/.test(value))
      report(line, "unchecked code");
  }
  return faults;
}

function isExecForm(value: string): boolean {
  try {
    const parts = JSON.parse(value) as unknown;
    return Array.isArray(parts) && parts.every((part) => typeof part === "string");
  } catch {
    // Not JSON is the shell form: the answer, not an error.
    return false;
  }
}

/** Sources of COPY from the build context, which .dockerignore must let through. */
export function copiedPaths(text: string): string[] {
  return parseDockerfile(text)
    .filter(({ name, value }) => name === "COPY" && !value.startsWith("--from"))
    .flatMap(({ value }) => value.split(/\s+/).slice(0, -1))
    .map((path) => path.replace(/^\.\//, ""));
}

type Compose = { services?: Record<string, Record<string, unknown>>; volumes?: object };

const serviceKeys = new Set(
  (
    "build cap_drop command container_name depends_on environment healthcheck image networks ports " +
    "read_only restart security_opt stop_grace_period tmpfs ulimits user volumes"
  ).split(" "),
);

export function composeFaults(text: string): string[] {
  const faults: string[] = [];
  const file = parse(text) as Compose;
  for (const key of Object.keys(file)) {
    if (!["name", "services", "volumes", "networks"].includes(key))
      faults.push(`unknown key ${key}`);
  }
  const services = Object.entries(file.services ?? {});
  if (services.length === 0) faults.push("no services");
  for (const [name, service] of services) {
    for (const key of Object.keys(service)) {
      if (!serviceKeys.has(key)) faults.push(`${name}: unknown key ${key}`);
    }
    const image = String(service.image ?? "");
    if (!/:[^:/]+$/.test(image) || image.endsWith(":latest")) {
      faults.push(`${name}: image ${image || "without a name"} has no exact tag`);
    }
    for (const port of (service.ports ?? []) as unknown[]) {
      // YAML reads some unquoted pairs of numbers as one number in base 60.
      if (typeof port !== "string" || !/^(\d+\.\d+\.\d+\.\d+:)?\d+:\d+$/.test(port)) {
        faults.push(`${name}: port ${String(port)} is not "address:port:port"`);
      } else if (port.split(":").length < 3) {
        faults.push(`${name}: port ${port} is open to every network`);
      }
    }
    for (const volume of (service.volumes ?? []) as string[]) {
      const source = volume.split(":")[0] as string;
      const isNamed = /^[a-z][\w-]*$/.test(source);
      if (isNamed && !(source in (file.volumes ?? {}))) {
        faults.push(`${name}: volume ${source} is not declared`);
      }
    }
    for (const key of ["restart", "stop_grace_period", "volumes"]) {
      if (service[key] === undefined) faults.push(`${name}: no ${key}`);
    }
  }
  return faults;
}

const unitKeys: Readonly<Record<string, readonly string[]>> = {
  Unit: ["Description", "After"],
  Service: ["ExecStart", "Restart", "NoNewPrivileges", "ProtectSystem", "TimeoutStopSec"],
  Install: ["WantedBy"],
};

export function unitFaults(text: string): string[] {
  const faults: string[] = [];
  const sections = new Map<string, Map<string, string>>();
  let section: Map<string, string> | undefined;
  text.split("\n").forEach((line, index) => {
    if (/^\s*([#;]|$)/.test(line)) return;
    const head = /^\[(\w+)\]$/.exec(line)?.[1];
    const pair = /^(\w+)=(.*)$/.exec(line);
    if (head !== undefined) {
      section = new Map();
      sections.set(head, section);
    } else if (pair !== null && section !== undefined)
      section.set(pair[1] as string, pair[2] as string);
    else faults.push(`line ${index + 1}: neither a section nor a setting: ${line}`);
  });
  for (const [name, keys] of Object.entries(unitKeys)) {
    for (const key of keys) {
      if (!sections.get(name)?.has(key)) faults.push(`[${name}] has no ${key}`);
    }
  }
  const service = sections.get("Service");
  const command = service?.get("ExecStart") ?? "";
  if (!command.startsWith("/")) faults.push("ExecStart needs an absolute path");
  const isOther = service?.has("DynamicUser") || service?.has("User");
  if (!isOther || service?.get("User") === "root") faults.push("the broker would run as root");
  return faults;
}
