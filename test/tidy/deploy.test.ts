import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { parse } from "yaml";
import { composeFaults, copiedPaths, dockerfileFaults, unitFaults } from "./deploy-rules.ts";

const at = (path: string): string => fileURLToPath(new URL(`../../${path}`, import.meta.url));
const read = (path: string): string => readFileSync(at(path), "utf8");
const dockerfile = read("docker/Dockerfile");
const compose = read("docker/compose.yaml");
const composeCluster = read("docker/compose.cluster.yaml");
const unit = read("docker/flagstone.service");

/** The text with one change; fails when there was nothing to change. */
function change(text: string, from: string | RegExp, to: string): string {
  const changed = text.replace(from, to);
  expect(changed).not.toBe(text);
  return changed;
}

describe("the container image", () => {
  test("keeps the rules", () => {
    expect(dockerfileFaults(dockerfile)).toEqual([]);
  });

  test("copies only what exists and what .dockerignore lets through", () => {
    const letThrough = new Set(
      read(".dockerignore")
        .split("\n")
        .filter((line) => line.startsWith("!"))
        .map((line) => line.slice(1)),
    );
    expect(copiedPaths(dockerfile)).toContain("src");
    for (const path of copiedPaths(dockerfile)) {
      expect(existsSync(at(path)), path).toBe(true);
      expect(letThrough, path).toContain(path);
    }
  });

  test("starts the file that the package names as its command, on the engine it asks for", () => {
    const manifest = JSON.parse(read("package.json"));
    expect(dockerfile).toContain(`ENTRYPOINT ["node", "${manifest.bin.flagstone}"]`);
    expect(manifest.engines.node).toBe(">=20.19");
    expect(dockerfile).toMatch(/^FROM node:20\.(19|2\d)\./m);
  });

  const faults: Array<[string, string | RegExp, string, RegExp]> = [
    ["a moving tag", /node:20\.\d+\.\d+-bookworm-slim/, "node:latest", /no exact tag/],
    ["root", "USER flagstone", "USER root", /run as root/],
    ["no user", "USER flagstone\n", "", /no USER/],
    [
      "a shell around the broker",
      /CMD \["start".*\]/,
      "CMD start --data /data",
      /CMD runs a shell/,
    ],
    ["no health check", /HEALTHCHECK[\s\S]*?\]\n/, "", /no HEALTHCHECK/],
    ["no volume", "VOLUME /data\n", "", /no VOLUME/],
    ["an install that ignores the lock", "npm ci", "npm install", /keeps to the lock/],
    ["a single stage", /^FROM .* AS build$/m, "# none", /one stage/],
    ["ADD", "COPY src", "ADD src", /use COPY/],
  ];
  test.each(faults)("shows %s", (_what, from, to, said) => {
    expect(dockerfileFaults(change(dockerfile, from, to)).join("\n")).toMatch(said);
  });
});

describe("the compose file", () => {
  test("keeps the rules", () => {
    expect(composeFaults(compose)).toEqual([]);
  });

  test("names the image after the version of the package", () => {
    expect(compose).toContain(`image: flagstone:${JSON.parse(read("package.json")).version}`);
  });

  const faults: Array<[string, string | RegExp, string, RegExp]> = [
    ["a moving tag", /flagstone:\d+\.\d+\.\d+/, "flagstone:latest", /no exact tag/],
    ["a port open to all", '"127.0.0.1:1883:1883"', '"1883:1883"', /open to every network/],
    ["a port that YAML reads as a number", '"127.0.0.1:1883:1883"', "1883", /is not "address/],
    ["a volume that nobody declares", "volumes:\n  data: {}\n", "", /not declared/],
    ["a key that does not exist", "read_only:", "readonly:", /unknown key readonly/],
    ["no restart", /restart: .*\n/, "", /no restart/],
  ];
  test.each(faults)("shows %s", (_what, from, to, said) => {
    expect(composeFaults(change(compose, from, to)).join("\n")).toMatch(said);
  });
});

describe("the compose file of a cluster", () => {
  test("keeps the rules", () => {
    expect(composeFaults(composeCluster)).toEqual([]);
  });

  test("names the image after the version of the package", () => {
    const image = `image: flagstone:${JSON.parse(read("package.json")).version}`;
    expect(composeCluster.split(image)).toHaveLength(4);
  });

  test("gives each node a command that its configuration takes, and a name of its own", () => {
    const services = parse(composeCluster).services as Record<string, { command: string[] }>;
    for (const [name, { command }] of Object.entries(services)) {
      const sets = command.filter((_, at) => command[at - 1] === "--set");
      expect(sets).toContain(`cluster.node=${name}`);
      const flags = command.slice(command.indexOf("--set"));
      const main = at("dist/cli/main.js");
      const told = execFileSync(process.execPath, [main, "config", "check", ...flags]);
      expect(told.toString()).toContain("configuration is good");
    }
  });
});

describe("the systemd unit", () => {
  test("keeps the rules", () => {
    expect(unitFaults(unit)).toEqual([]);
  });

  test("does not restart for what a restart cannot mend", () => {
    expect(unit).toMatch(/^RestartPreventExitStatus=2 3 5$/m);
  });

  const faults: Array<[string, string | RegExp, string, RegExp]> = [
    ["root", "DynamicUser=yes\n", "", /run as root/],
    ["a relative command", "ExecStart=/usr/bin/node", "ExecStart=node", /absolute path/],
    ["a line that is no setting", "Type=exec", "Type exec", /neither a section nor a setting/],
    ["no hardening", "ProtectSystem=strict\n", "", /no ProtectSystem/],
  ];
  test.each(faults)("shows %s", (_what, from, to, said) => {
    expect(unitFaults(change(unit, from, to)).join("\n")).toMatch(said);
  });
});
