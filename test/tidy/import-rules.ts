// Rules on who imports whom: floors, doors, cycles, homes of packages. Each takes a file tree and
// returns the faults it sees; none reads the disk. Type-only imports count like all others: they
// bind a reader's mind as much as a value does.

import { closedRooms, floorOf, packageHomes, roomOf, sideDoors } from "./house.ts";
import { codeIn, type Fault, type FileTree, importsOf, resolveImport } from "./tree.ts";

type Edge = { from: string; to: string; line: number };

function edgesOf(tree: FileTree): Edge[] {
  return codeIn(tree, "src").flatMap((from) =>
    importsOf(tree, from).flatMap(({ specifier, line }) => {
      const to = resolveImport(from, specifier);
      return to === undefined ? [] : [{ from, to, line }];
    }),
  );
}

/** Every room has a floor; a file imports from its own room or from a floor below. */
export function floorsRule(tree: FileTree): Fault[] {
  const faults: Fault[] = [];
  for (const path of codeIn(tree, "src")) {
    const room = roomOf(path);
    if (room === undefined || floorOf(room) < 0) {
      const message = `${room ?? "a file beside the rooms"} has no floor; see test/tidy/house.ts`;
      faults.push({ rule: "floors", path, line: 1, message });
    }
  }
  for (const { from, to, line } of edgesOf(tree)) {
    const message = floorFault(roomOf(from), roomOf(to), to);
    if (message !== undefined) faults.push({ rule: "floors", path: from, line, message });
  }
  return faults;
}

function floorFault(room: string | undefined, other: string | undefined, to: string) {
  if (room === undefined || room === other) return undefined;
  if (other === undefined) return `imports ${to}, which is outside src/`;
  const closed = closedRooms[room];
  if (closed !== undefined && !closed.includes(to)) return `${room} may import only ${closed}`;
  const [floor, otherFloor] = [floorOf(room), floorOf(other)];
  if (otherFloor < 0 || floor < 0 || otherFloor < floor) return undefined;
  const where = otherFloor === floor ? "on its own floor" : "above it";
  return `${room} (floor ${floor}) imports ${other} (floor ${otherFloor}), ${where}`;
}

/** Another room is entered through its index.ts. */
export function doorsRule(tree: FileTree): Fault[] {
  const faults: Fault[] = [];
  for (const { from, to, line } of edgesOf(tree)) {
    const [room, other] = [roomOf(from), roomOf(to)];
    if (other === undefined || room === other || to === `src/${other}/index.ts`) continue;
    if (sideDoors.some(([who, file]) => who === room && file === to)) continue;
    const message = `imports ${to}; enter through src/${other}/index.ts`;
    faults.push({ rule: "doors", path: from, line, message });
  }
  return faults;
}

/** An index.ts is the face of a room; there are no barrels inside. */
export function barrelsRule(tree: FileTree): Fault[] {
  return codeIn(tree, "src")
    .filter((path) => /\/index\.ts$/.test(path) && !/^src\/[^/]+\/index\.ts$/.test(path))
    .map((path) => ({ rule: "barrels", path, line: 1, message: "only a room has an index.ts" }));
}

/** A relative import names a file of the tree, with its extension. */
export function resolvesRule(tree: FileTree): Fault[] {
  return edgesOf(tree)
    .filter(({ to }) => !tree.has(to))
    .map(({ from, to, line }) => {
      return { rule: "resolves", path: from, line, message: `there is no file ${to}` };
    });
}

/** No file imports itself through others. One fault per cycle, at its first file by name. */
export function cyclesRule(tree: FileTree): Fault[] {
  const targets = new Map<string, Edge[]>();
  for (const edge of edgesOf(tree)) {
    const list = targets.get(edge.from) ?? [];
    list.push(edge);
    targets.set(edge.from, list);
  }
  const faults: Fault[] = [];
  const state = new Map<string, "open" | "done">();
  const trail: string[] = [];
  const visit = (path: string): void => {
    state.set(path, "open");
    trail.push(path);
    for (const { to, line } of targets.get(path) ?? []) {
      if (state.get(to) === "open") {
        const cycle = [...trail.slice(trail.indexOf(to)), to];
        faults.push({ rule: "cycles", path, line, message: cycle.join(" -> ") });
      } else if (state.get(to) === undefined) visit(to);
    }
    trail.pop();
    state.set(path, "done");
  };
  for (const path of [...targets.keys()].sort()) if (!state.has(path)) visit(path);
  return faults;
}

type Manifest = { dependencies?: object; peerDependencies?: object };

/** Each third-party package has one home in src/ and is a runtime dependency. */
export function homesRule(tree: FileTree): Fault[] {
  const faults: Fault[] = [];
  const manifest = JSON.parse(tree.get("package.json") ?? "{}") as Manifest;
  const allowed = { ...manifest.dependencies, ...manifest.peerDependencies };
  const firstUser = new Map<string, string>();
  for (const path of codeIn(tree, "src")) {
    for (const { specifier, line } of importsOf(tree, path)) {
      const name = packageName(specifier);
      if (name === undefined) continue;
      const report = (message: string) => faults.push({ rule: "homes", path, line, message });
      const bundled = path.startsWith("src/ui/");
      if (!bundled && !(name in allowed)) report(`${name} is not a dependency in package.json`);
      const listed = packageHomes[name] ?? firstUser.get(name) ?? path;
      const homes = typeof listed === "string" ? [listed] : listed;
      firstUser.set(name, homes[0] ?? path);
      const isHome = (home: string) => (home.endsWith("/") ? path.startsWith(home) : path === home);
      if (!homes.some(isHome)) report(`${name} lives in ${homes.join(", ")}; go through that`);
    }
  }
  return faults;
}

/** `@a/b/c` -> `@a/b`; undefined for relative and built-in modules. */
export function packageName(specifier: string): string | undefined {
  if (/^(\.|\/|node:)/.test(specifier)) return undefined;
  return specifier.split("/", specifier.startsWith("@") ? 2 : 1).join("/");
}
