// Draws power cuts for a record: where to cut, what to keep. Cuts fall where they hurt: beside the
// end of a sync, beside a change of names, and anywhere else. All from one seed per image, so that
// a failing image is made again from the numbers that its failure prints.

import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { SeededRandom } from "../../src/base/index.ts";
import type { Image, NamesModel, PowerCut } from "./image-builder.ts";
import { changesDisk, type Operation } from "./record-reader.ts";

/** Cuts the record at a drawn place that is not before operation `from`. */
export function drawPowerCut(
  operations: readonly Operation[],
  seed: number | string,
  namesModel: (folder: string) => NamesModel,
  from = 0,
): PowerCut {
  const random = new SeededRandom(seed);
  const cut = drawCut(operations, from, random);
  const bytes = random.pick(["none", "all", "prefix", "any", "any"] as const);
  const lostSectors = random.pick(["zeros", "noise"] as const);
  return { cut, bytes, namesModel, lostSectors, random };
}

function drawCut(operations: readonly Operation[], from: number, random: SeededRandom): number {
  const wanted = random.pick(["sync", "name", "any"] as const);
  const places: number[] = [];
  for (let at = from; at < operations.length; at++) {
    const operation = operations[at] as Operation;
    const isSync = operation.kind === "syncEnd";
    const isName = changesDisk(operation) && "path" in operation && !isSync;
    if (wanted === "any" || (wanted === "sync" ? isSync : isName)) places.push(at);
  }
  if (places.length === 0) return operations.length - 1;
  const place = random.pick(places);
  return Math.max(from, random.chance(0.5) ? place : place - 1);
}

export function formatPowerCut(powerCut: PowerCut, operations: readonly Operation[]): string {
  const operation = operations[powerCut.cut];
  const what = operation === undefined ? "the start" : operation.kind;
  return (
    `power cut behind operation ${powerCut.cut} of ${operations.length} (${what}), ` +
    `unsynced bytes: ${powerCut.bytes}, lost sectors: ${powerCut.lostSectors}`
  );
}

/** What is in a folder now, in the form of an image. */
export function readImage(root: string): Image {
  const image = new Map<string, Buffer | "folder">();
  const visit = (folder: string): void => {
    for (const name of readdirSync(join(root, folder)).sort()) {
      const path = folder === "" ? name : `${folder}/${name}`;
      const isFolder = statSync(join(root, path)).isDirectory();
      image.set(path, isFolder ? "folder" : readFileSync(join(root, path)));
      if (isFolder) visit(path);
    }
  };
  visit("");
  return image;
}

/** Paths at which two images differ, with how. */
export function compareImages(expected: Image, actual: Image): string[] {
  const differences: string[] = [];
  for (const path of new Set([...expected.keys(), ...actual.keys()])) {
    const [a, b] = [expected.get(path), actual.get(path)];
    if (a === undefined || b === undefined) {
      differences.push(`${path}: ${a === undefined ? "unexpected" : "missing"}`);
    } else if (a === "folder" || b === "folder") {
      if (a !== b) differences.push(`${path}: a file and a folder`);
    } else if (!a.equals(b)) {
      differences.push(`${path}: ${a.length} and ${b.length} bytes differ`);
    }
  }
  return differences.sort();
}
